"""N-best lists: read and write them, add a language model's scores, tune weights.

``lists`` has hypotheses in lists, ``formats`` their formats. ``language_model`` adds features,
``weights`` combines features, and ``tuning`` fits weights to a measure of ``measures``.
None of these modules needs fairseq.
"""
