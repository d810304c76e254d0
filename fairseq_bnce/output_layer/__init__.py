"""The output layer of any supported decoder.

``layer`` takes a decoder apart into features and rows, and can have it return squashed scores. The
rows are a plain matrix or those of ``bands``. ``initial_scores`` sets the scores of an untrained
model.
"""
