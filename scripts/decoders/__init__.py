"""A beam search with words and language models: of bench.py decoding and first-pass.

``search`` has flashlight's decoder and the language models that are compared. ``made`` makes a
lexicon, emissions and a trigram, and decodes in a process of its own, for bench.py decoding.
"""

BLANK, SILENCE = 0, 1  # the first of the tokens
