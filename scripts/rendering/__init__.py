"""The parts of scripts/render_tables.py.

``cells`` formats numbers and tables, ``tables`` lists every table by its name. The other modules
turn the JSON of one script or several into a table: ``comparisons`` and ``adaptive`` for
compare.py, ``papers`` for recipe.py, ``benchmarks`` for bench_vocab.py and gpu_run.py, ``speech``
for the speech examples and bench_decoding.py, ``scoring`` for what scores text. ``frontier`` takes
the results of every training, also for the pictures of scripts/frontier.py.
"""
