"""A beam search with words and language models: of bench_decoding.py and first_pass_example.py.

``made`` makes a lexicon and emissions, ``ngrams`` a trigram for KenLM, ``systems`` the language
models that are compared, ``search`` flashlight's decoder with one of them; ``measure`` decodes in a
process of its own, for bench_decoding.py.
"""
