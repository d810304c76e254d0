"""Text in and out, and its words.

``reading`` and ``writing`` handle files and lines, ``tokens`` and ``penn`` cut lines into words,
``training_text`` records how the words of a model's training text were made, and ``numerals`` has
the types of numbers in commands. Only sacremoses is needed.
"""
