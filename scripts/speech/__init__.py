"""The parts of speech_example.py and first_pass_example.py.

``stages`` runs the stages of an example in a folder. ``sentences`` draws sentences. ``sound``
speaks and recognises them, by the ``lattice`` of the recogniser. ``acoustics`` has a CTC model and
its features. ``searches`` turns its emissions into words, and ``errors`` counts their errors.
"""
