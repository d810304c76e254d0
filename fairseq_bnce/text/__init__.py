"""Text in and out, and its words.

``reading`` and ``writing`` handle files and lines, ``tokens`` cuts lines into words, and
``training_text`` records how the words of a model's training text were made, and makes words of
other text in the same way. Only sacremoses is needed.
"""
