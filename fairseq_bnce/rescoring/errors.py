"""What a user has to mend in lists, references and weights."""


class RescoringError(Exception):
    """Names the file and line, what was required there and what came."""
