"""Training with fairseq: the criteria and all that they need beside a loss.

``criterions`` are the registered criteria, ``criterion`` what they share, ``objectives`` what they
minimise. ``configs`` are their flags, ``flags`` checks these, and ``first_batch`` checks the rest.
``noise_source`` draws from what ``token_counts`` counts, in files that ``data`` looks at; ``log_z``
says where log Z starts, ``metrics`` what is logged, and ``streams`` carries recurrent state over
batches.
"""
