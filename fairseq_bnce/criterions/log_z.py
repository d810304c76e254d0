"""Where the constant log Z of a training starts.

A number of ``--log-z`` is taken as it is. Under ``auto`` log Z is, in this order,

1. the one of the checkpoint from which the training goes on, resumed or fine-tuned, if it has one;
2. what the output bias of an untrained model is set to carry;
3. the mean of the exact log Z_c over contexts of the first training batch.
"""

import math
from typing import Any, Mapping, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.checkpoints.origin import CheckpointChoice, Restored, restored
from fairseq_bnce.errors import require
from fairseq_bnce.text.numerals import decimal

_MOST_CONTEXTS, _FEWEST_CONTEXTS = 1024, 32
_MOST_SCORES = 2**27  # in the measurement: seconds on one core, at any vocabulary size
_DIGITS = 2


class Start(NamedTuple):
    """Where log Z starts.

    Attributes:
        value: nats; None if it is to be measured on the first batch.
        origin: the reason, for the log.
    """

    value: Optional[float]
    origin: str


class Constant:
    """The constant log Z of one training, as it starts.

    Args:
        flag: the value of ``--log-z``.
        choice: which checkpoint the training goes on from.
        is_learned: whether log Z is learned from there.

    Attributes:
        given: the flag's number, nats; None for ``auto``.
        start: nats; None until it is measured.
        is_decided: whether it is known where it starts, or that it is to be measured.
        goes_on: whether the training goes on from a checkpoint.
        restored: what of it concerns the criterion, once ``decide`` has been called.
        normaliser: mu_z and sigma_z of that one's last validation, nats, if log Z is still its own.
    """

    def __init__(self, flag: Any, choice: CheckpointChoice, is_learned: bool):
        self._choice, self._is_learned = choice, is_learned
        self.given = self.start = parsed(flag)
        self.origin = ""
        self.is_decided = self.goes_on = False
        self.normaliser: Mapping[str, float] = {}
        self.restored: Optional[Restored] = None

    def decide(self, carried: Optional[float], by_bias: Optional[float], normalises: bool) -> None:
        """Before the first batch.

        Args:
            carried: by the task that was loaded with the model, as fairseq-validate does it.
            by_bias: what the output bias of an untrained model carries, if there is one to set.
            normalises: whether the loss draws scores to log Z.

        Raises:
            ValueError: for ``--learn-log-z`` switched on or off while the optimiser goes on.
        """
        if carried is not None:
            self._take(Start(carried, "carried by the checkpoint"))
        elif normalises:
            found = self.restored = restored(self._choice)
            check_learned(found, self._is_learned)
            self.goes_on = found is not None
            self._take(start(self.given, found, by_bias))
            if found is not None and found.log_z is not None and found.log_z == self.start:
                self.normaliser = found.normaliser
        else:
            found = self.restored = restored(self._choice)
            if found is not None and found.log_z is None:
                self.normaliser = found.normaliser
            of_bias = self.given if self.given is not None else by_bias or 0.0
            self._take(Start(of_bias, "none, since this loss does not normalise scores"))

    def measure(self, values: Tensor) -> None:
        """The mean of log Z_c (M,) on all ranks' first batches, if one of them has a token."""
        self.start = measured(values)
        if self.start is not None:
            self.origin += "measured, the mean of log Z_c on the first training batch"

    def resume(self, learned_from: Optional[float]) -> None:
        """Go on from a checkpoint's start; None if it was saved before the first batch."""
        if learned_from is not None:
            given = self.given
            unused = "" if given in (None, learned_from) else f", and not from --log-z {given:g}"
            origin = f"as far as it was learned, from {learned_from:g} on{unused}"
            self._take(Start(learned_from, origin))
            if self.restored is not None:
                self.normaliser = self.restored.normaliser

    def _take(self, chosen: Start) -> None:
        self.start, self.origin = chosen
        self.is_decided = True


def check_learned(found: Optional[Restored], is_learned: bool) -> None:
    """The state of an optimiser is that of the parameters that it had.

    Raises:
        ValueError: naming the flag, what is required and what came.
    """
    if found is None or found.optimizes_log_z is None:
        return
    given, missing = "--learn-log-z", "training without it"
    before, now = (given, missing) if found.optimizes_log_z else (missing, given)
    required = f"{before}, as {found.path} was trained, or --reset-optimizer"
    require(given, required, now, is_learned == found.optimizes_log_z)


def parsed(flag: Any) -> Optional[float]:
    """The number that ``--log-z`` gives, or None for ``auto``.

    Raises:
        ValueError: for any other text.
    """
    if flag == "auto":
        return None
    number = decimal(str(flag))
    is_finite = number is not None and math.isfinite(number)
    require("--log-z", "a finite number or 'auto'", flag, is_finite)
    return number


def start(number: Optional[float], found: Optional[Restored], by_bias: Optional[float]) -> Start:
    """Where log Z starts.

    Args:
        number: of ``--log-z``; None for ``auto``.
        found: the checkpoint that the training goes on from.
        by_bias: what the output bias of an untrained model carries, if there is one that is set.
    """
    if number is not None:
        return Start(number, f"--log-z{_in_the_place_of(number, found)}")
    if found is not None and found.log_z is not None:
        return Start(found.log_z, f"carried by {found.path}")
    if found is not None:
        return Start(None, f"{found.path} carries none: ")
    if by_bias is not None:
        return Start(by_bias, "--log-z auto: what the output bias is set to carry")
    return Start(None, "--log-z auto: ")


def _in_the_place_of(number: float, found: Optional[Restored]) -> str:
    if found is None or found.log_z in (None, number):
        return ""
    return f", in the place of the {found.log_z:g} that {found.path} was trained to"


def measured(values: Tensor) -> Optional[float]:
    """The mean over all ranks of log Z_c, rounded; None if no rank has a context.

    Args:
        values: (M,) this rank's, nats; M may be 0.

    Raises:
        ValueError: if it is not finite.
    """
    total, count = ranks.total(
        torch.stack([values.sum(dtype=torch.float64), values.new_tensor(len(values)).double()])
    ).tolist()
    if not count:
        return None
    mean = total / count
    required = "a number, where log Z_c of the first batch is not finite"
    require("--log-z", required, f"auto, which measured {mean}", math.isfinite(mean))
    return round(mean, _DIGITS)


def contexts_to_measure(tokens: int, vocabulary: int, device: torch.device) -> Tensor:
    """(M,) indices of up to 1,024 tokens of a batch, at random; fewer at a very large V."""
    affordable = max(_FEWEST_CONTEXTS, min(_MOST_CONTEXTS, _MOST_SCORES // vocabulary))
    count = min(tokens, affordable)
    # Evenly spread they might all be at one place of their lines.
    generator = torch.Generator(device=device).manual_seed(1)
    return torch.randperm(tokens, device=device, generator=generator)[:count]
