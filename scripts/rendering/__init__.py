"""The parts of scripts/render_tables.py.

``pages`` finds the places in a page and fills them, ``cells`` writes numbers and lines, ``tables``
knows every table by its name. The others make lines of what a script wrote: ``comparisons`` and
``adaptive`` of compare.py's JSON, ``papers`` of recipe.py's, ``benchmarks`` of bench_vocab.py's,
``scoring`` of what scores text, ``decoding`` of bench_decoding.py's, ``rescoring`` and
``first_pass`` of the speech examples', ``corpora`` of what prepares text. ``frontier`` is of all
that trained: for docs/frontier.md's table, and the pictures of scripts/frontier.py.
"""
