"""Training that touches the rows that a batch uses, and no others.

``row_sparse`` makes and merges row-sparse gradients, ``update_rules`` has torch optimisers for
them, and ``registered`` registers these optimisers with fairseq.
"""
