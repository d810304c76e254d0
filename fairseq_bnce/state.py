"""What the task's state holds: the facts of a checkpoint, beside its parameters, for scoring."""

from typing import Any, Dict, Generic, Optional, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class _Entry(Generic[Value]):
    """An entry under the attribute's name. None is no entry."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, state: "ScoringState", owner: type) -> Optional[Value]:
        return state.entries.get(self._name)

    def __set__(self, state: "ScoringState", value: Optional[Value]) -> None:
        state.entries[self._name] = value
        if value is None:
            del state.entries[self._name]


class ScoringState:
    """A task's state, read and written in the dictionary that fairseq saves.

    Args:
        entries: the dictionary, which may hold other tasks' entries, too; None for an empty one.

    Attributes: each is None without such an entry.
        log_z: the constant log Z, nats, of a model that normalises itself.
        mu_z, sigma_z: mean and standard deviation of log Z_c - log Z in validation, nats.
        score_squashing: True for a model with squashed scores.
        output_bands: True for an adaptive softmax that is read as bands.
        reduced_partition: ``weight`` (K, D) and ``bias`` (K,) of a reduced partition function.
        longest_context: the largest number of words that the model read at once in training.
        training_text: the fields of :class:`fairseq_bnce.text.training_text.TrainingText`.
        dictionary_sha256: a digest of the dictionary's words.
        data_folder: the full path of the training data.
    """

    log_z = _Entry[float]()
    mu_z = _Entry[float]()
    sigma_z = _Entry[float]()
    score_squashing = _Entry[bool]()
    output_bands = _Entry[bool]()
    reduced_partition = _Entry[Dict[str, Tensor]]()
    longest_context = _Entry[int]()
    training_text = _Entry[Dict[str, object]]()
    dictionary_sha256 = _Entry[str]()
    data_folder = _Entry[str]()

    def __init__(self, entries: Optional[Dict[str, Any]] = None):
        self.entries = {} if entries is None else entries

    @property
    def is_self_normalised(self) -> bool:
        """Return whether scores need no softmax."""
        return self.log_z is not None or self.reduced_partition is not None

    @property
    def constant(self) -> float:
        """Return the constant log Z, nats; 0 without one, or with a reduced partition function."""
        return 0.0 if self.reduced_partition is not None else float(self.log_z or 0.0)

    def numbers(self) -> Dict[str, object]:
        """Return the numbers that scoring subtracts from scores, by their names."""
        reduced = {f"reduced_partition.{k}": v for k, v in (self.reduced_partition or {}).items()}
        found = {"log_z": self.log_z, "mu_z": self.mu_z, "sigma_z": self.sigma_z, **reduced}
        return {name: value for name, value in found.items() if value is not None}
