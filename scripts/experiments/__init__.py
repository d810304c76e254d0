"""The engine of all experiments.

``run`` takes a run through its parts, ``processes`` starts a command and measures its process,
``train`` is fairseq-train with a clock in its log, ``logs`` reads what fairseq prints, ``machine``
describes the machine, data and versions. ``measure`` is a command for what fairseq does not print,
with measures/. ``tables`` and ``plot`` write reports; ``command`` is shared by all command lines.

The runs and reports of each script: ``training`` and ``comparison`` (compare.py, and recipe.py,
with ``papers``), ``vocabulary`` (bench_vocab.py), ``output_layer``. ``recipes`` and ``sentences``
serve several scripts. Data: recipes.yaml, reports.yaml, ../recipes.
"""
