"""The parts of scripts/compare.py.

``recipes`` says what is trained, ``runs`` takes one run through its stages, ``processes`` starts
fairseq's commands, ``logs`` reads what they print, ``measure`` is a command of its own for what
they don't print, ``machine`` says where it ran, ``summary`` gathers the runs' numbers,
``report`` and ``plot`` write them.
"""
