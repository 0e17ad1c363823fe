"""Results as files, pictures and pages: what experiments and commands share."""
