"""Training with fairseq: the criteria and all that they need beside a loss.

``criterions`` are the registered criteria, ``configs`` their flags, ``objectives`` what they
minimise; ``log_z`` says where the constant starts, ``token_counts`` counts the training data for
the noise, ``metrics`` what is logged, and ``streams`` carries recurrent state over batches.
"""
