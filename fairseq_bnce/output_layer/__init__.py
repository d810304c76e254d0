"""The output layer of any supported decoder.

``layer`` takes a decoder apart into features and rows, which ``plain`` or ``bands`` hold. ``batch``
holds a batch's targets and features. ``initial_scores`` sets the scores of an untrained model.
``squashing`` has a decoder return squashed scores.
"""
