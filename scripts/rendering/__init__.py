"""The parts of scripts/render_tables.py.

``pages`` finds the places in a page and fills them, ``cells`` writes numbers and lines,
``comparisons``, ``benchmarks`` and ``adaptive`` make lines of the JSON files that compare.py,
bench_vocab.py and bench_scoring.py write, ``tables`` knows every table by its name.
"""
