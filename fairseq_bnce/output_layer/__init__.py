"""The output projection of any supported decoder, and a batch's way from it to a loss.

``output_layer`` takes a decoder apart: features in the place of scores, rows of the projection;
``batch`` holds a batch's targets and the rows of the words that it touches; ``squashing`` makes
squashed scores a property of a decoder.
"""
