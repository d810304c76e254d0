"""The criteria and all that they need besides a loss.

``registered`` holds the criteria, ``base`` what they share, ``objectives`` what they minimise.
``options`` are their flags, and ``flags`` checks these. ``noise_source`` draws the noise, ``log_z``
decides where log Z starts, and ``metrics`` logs.
"""
