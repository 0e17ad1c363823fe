"""Learn how much each source of text counts, so that a language model does well on a target domain."""
