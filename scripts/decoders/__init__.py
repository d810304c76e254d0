"""A beam search with words and language models: of bench.py decoding and first-pass.

``made`` makes a lexicon and emissions, and ``ngrams`` a trigram for KenLM. ``search`` has
flashlight's decoder and the language models that are compared. ``measure`` decodes in a process of
its own, for bench.py decoding.
"""
