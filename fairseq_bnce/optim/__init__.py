"""Training that touches the rows that a batch uses, and no others.

``row_sparse`` makes and merges such gradients, ``update_rules`` are torch optimisers that follow
them, and ``optimizers`` are these under fairseq's names.
"""
