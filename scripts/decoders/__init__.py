"""The parts of scripts/bench_decoding.py.

``made`` makes a lexicon and emissions, ``ngrams`` a trigram for KenLM, ``systems`` the language
models that are compared, ``search`` flashlight's decoder with one of them; ``measure`` decodes in a
process of its own.
"""
