"""The engine of all experiments.

``run`` takes a run through its parts, ``processes`` starts a command and measures its process,
``call`` calls a function in a process of its own, such as those of measures/. ``train`` is
fairseq-train with a clock in its log, ``logs`` reads what fairseq prints, ``machine`` describes the
machine, data and versions. ``report`` and ``plot`` write results; ``command`` is shared by all
command lines.

The runs of each script: ``training`` and ``comparison`` (compare.py and recipe.py), ``benches``
(bench.py). A ``workshop`` is a bench's folder with data, models and results, and runs its commands.
``recipes`` serves several scripts. Data: benches.yaml, recipes.yaml, reports.yaml, ../recipes.
``gpu_run`` is a command for one GPU.
"""
