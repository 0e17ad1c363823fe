"""``bvfim clean``: tables and pictures in, findings and a page to review them out."""
