"""The parts of bench.py speech and first-pass.

``sentences`` draws sentences. ``sound`` speaks and recognises them, by the ``lattice`` of the
recogniser. ``acoustics`` has a CTC model and its features. ``searches`` turns its emissions into
words, and ``errors`` counts their errors.
"""
