"""Text on its way to training: corpora, prepare-text, checks of binarised data, token counts."""
