"""Training data: made of text (prepare-text, get-data), checked, and its words counted."""
