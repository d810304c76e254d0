"""The parts of scripts/bench_decoding.py.

``made`` makes a lexicon and emissions, ``ngrams`` a trigram for KenLM, ``systems`` the language
models that are compared; ``measure`` decodes with one of them in a process of its own.
"""
