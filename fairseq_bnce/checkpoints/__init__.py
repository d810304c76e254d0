"""Checkpoints from anywhere: read without running what is in them, and built within bounds.

``loading`` makes a model of a file; ``configurations``, ``literals`` and ``contents`` check what
the file holds, ``building`` guards the making, ``dictionaries`` finds the dict.txt, and
``restoring`` has fairseq's own commands load in the same way.
"""
