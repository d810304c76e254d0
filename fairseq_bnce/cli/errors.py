"""What a user has to mend, apart from what the library itself raises."""


class CommandError(Exception):
    """Printed as ``fairseq-bnce: error: ...``, with exit status 2."""
