"""The parts of scripts/render_tables.py.

``cells`` formats numbers and tables, ``tables`` lists every table by its name, and ``figures``
fills in figures of sentences from their ``paths``. The other modules turn the JSON of one script or
several into a table: ``comparisons`` and ``adaptive`` for compare.py, ``papers`` for recipe.py,
``benchmarks`` for bench_vocab.py and gpu_run.py, ``scoring`` for scripts and commands that score
text, ``decoding`` for speech. ``frontier`` takes the results of every training, for the pictures of
scripts/frontier.py.
"""
