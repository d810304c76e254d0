"""Recipes for the corpora that language models over large vocabularies are measured on."""
