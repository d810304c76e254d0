"""Text in and out, line by line: with nothing but Python.

``lines`` and ``stream`` read, ``output`` writes, ``numerals`` are numbers as other programs write
them.
"""
