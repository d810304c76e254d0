"""From text files to binarised data: the parts of ``fairseq-bnce prepare-text``.

In the order of the text's way through them: ``options`` is the command line and what can be
refused early; ``reading`` gives files as lines, ``parallel`` runs a function over them
(``progress`` shows how far), ``words`` tokenises, ``splits`` shares lines out, ``vocabulary``
counts and cuts, ``binarising`` writes what the model sees and runs fairseq-preprocess, ``report``
tells what was made, ``folder`` puts it in its place. ``pipeline`` joins them. What the user has
to mend is an ``InputError``. Nothing here imports torch or fairseq.
"""
