"""The engine of all experiments.

``run`` takes a run through its parts, ``processes`` starts a command and measures its process,
``train`` is fairseq-train with a clock in its log, ``logs`` reads what fairseq prints, ``machine``
describes the machine, data and versions. ``measure`` is a command for what fairseq does not print,
with measures/. ``report`` and ``plot`` write results; ``command`` is shared by all command lines.

The runs of each script: ``training`` and ``comparison`` (compare.py, and recipe.py, with
``papers``), ``benches`` (bench.py). ``recipes`` and ``made`` serve several scripts. Data:
benches.yaml, recipes.yaml, reports.yaml, ../recipes. ``gpu_run`` is a command for one GPU.
"""
