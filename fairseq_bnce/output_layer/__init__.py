"""The output layer of any supported decoder.

``layer`` takes a decoder apart into features and rows, and can have it return squashed scores. The
rows are a plain matrix, or bands: ``bands`` reads them, and ``conversion`` makes them of an
adaptive softmax and sets their first scores. ``rows`` is what both kinds share.
``initial_scores`` sets the scores of an untrained model.
"""
