"""The engine of all experiments: what is run once and resumed, measured, tabulated and drawn.

Run: ``run`` takes a run through its parts, ``processes`` starts a command and measures its process,
``train`` is fairseq-train with a clock in its log, ``logs`` reads what fairseq prints, ``machine``
says where it ran. Measure: ``measure``, a command for what fairseq does not print, from measures/.
Table and plot: ``tables``, ``plot``. ``command`` is what the command lines share.

What is run, and what its report makes of it: ``training`` and ``comparison`` (compare.py, and
recipe.py, which adds ``papers``), ``vocabulary`` and ``growth`` (bench_vocab.py), ``output_layer``.
``recipes`` and ``sentences`` are what several share. Data: recipes.yaml, reports.yaml, ../recipes.
"""
