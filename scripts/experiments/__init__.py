"""The engine of all experiments: variants, each run once and resumed, measured, tabulated, drawn.

Run: ``run`` takes a run through its parts, ``processes`` starts a command and measures its process,
``training`` is a run of fairseq-train and what follows it, ``machine`` says where it ran, ``logs``
reads what fairseq prints. Measure: ``measure`` is a command of its own for what fairseq does not
print. Table and plot: ``tables``, ``plot``. What is run: ``recipes``, ``papers``. ``command`` is
what the command lines share. The files of data beside them: recipes.yaml, reports.yaml.
"""
