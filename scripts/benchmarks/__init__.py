"""The parts of scripts/bench_vocab.py; those of bench_output_layer.py are ``head*``.

``systems`` says what is measured, ``runs`` takes one system at one vocabulary through its parts;
``data`` (makes a corpus) and ``measure`` (times an update, and ``layers`` alone) are commands of
their own, since they import torch and bench_vocab.py must stay small; ``memory`` traces
allocations; ``summary`` fits and compares the numbers, ``report`` and ``plot`` write them. What
compare.py's package ``comparison`` has, is taken from there.
"""
