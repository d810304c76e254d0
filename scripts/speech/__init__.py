"""The parts of speech_example.py and first_pass_example.py.

``stages`` are done once each, in a folder; ``sentences`` are spoken, to ``sound``, which is
recognised as n-best lists out of a ``lattice``. ``features`` of sound are what the CTC model of
``acoustics`` learns from; ``searches`` make words of its emissions, and ``errors`` are counted in
them.
"""
