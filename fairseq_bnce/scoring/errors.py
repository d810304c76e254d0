"""What can be wrong with a model or with what it is asked for."""


class ScoringError(ValueError):
    """What was asked for cannot be scored with this model."""


class CheckpointError(ScoringError):
    """A file that holds no language model that can be used, or no dictionary that fits it."""
