"""Text in and out, line by line: with nothing but Python and sacremoses.

``lines`` reads what is written back byte for byte, ``stream`` what comes out of a pipe as it comes;
``output`` writes. ``tokens`` and ``penn`` make words of a line, ``training_text`` remembers how a
model's were made, and ``numerals`` reads numbers as other programs write them.
"""
