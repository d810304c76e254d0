"""A beam search with words and language models: of bench_decoding.py and first_pass_example.py.

``made`` makes a lexicon and emissions, and ``ngrams`` a trigram for KenLM. ``search`` has
flashlight's decoder and the language models that are compared. ``measure`` decodes in a process of
its own, for bench_decoding.py.
"""
