"""N-best lists: reading and writing them, adding a language model's scores, tuning the weights.

``lists`` are of hypotheses, ``moses`` and ``kaldi`` their formats; ``language_model`` adds features
(``prefixes`` scores what begins alike together), ``weights`` combines them, ``line_search`` and
``tuning`` fit the weights to a measure of ``measures``, and ``bootstrap`` says how sure a
difference is. None of them needs fairseq.
"""
