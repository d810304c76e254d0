"""Where the constant log Z of a training starts.

A number of ``--log-z`` is taken unchanged. Under ``auto``, log Z is, in this order,

1. log Z of the checkpoint that training continues from, if the checkpoint has one;
2. the value for which an untrained model's output bias is set;
3. the mean of the exact log Z_c over contexts of the first training batch.
"""

import math
from typing import Any, Dict, Optional

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_bnce import ranks
from fairseq_bnce.checkpoints.origin import Restored, restored
from fairseq_bnce.criterions.flags import Options
from fairseq_bnce.errors import require
from fairseq_bnce.state import ScoringState

_MOST_CONTEXTS, _FEWEST_CONTEXTS = 1024, 32
_MOST_SCORES = 2**27  # the measurement takes seconds on one core at any vocabulary size


def contexts_to_measure(tokens: int, vocabulary: int, device: torch.device) -> Tensor:
    """Draw the indices (M,) of up to 1,024 tokens of a batch; fewer at a very large V."""
    count = min(tokens, max(_FEWEST_CONTEXTS, min(_MOST_CONTEXTS, _MOST_SCORES // vocabulary)))
    # At random: evenly spread tokens might all stand at one place of their lines.
    generator = torch.Generator(device=device).manual_seed(1)
    return torch.randperm(tokens, device=device, generator=generator)[:count]


class CriterionWithLogZ(FairseqCriterion):
    """A criterion's constant log Z: its start, what is learned, and what checkpoints hold of it.

    Args:
        task: the task, whose state gets log Z.
        options: from :func:`flags.read`.
        normalises_itself: whether the loss draws log Z_c to log Z, so that scores need no softmax.

    Attributes:
        start: where log Z starts, nats; None until it is known. :meth:`start_at` sets it.
        origin: the reason, for the log.
        known_start: the start, nats; 0 until it is known, and for losses that do not normalise.
        continued: the checkpoint that training continues from, or None.
        state: of the task.
        learned_log_z: (1,) the learned change of log Z since its start, or None.
    """

    def __init__(self, task: FairseqTask, options: Options, normalises_itself: bool):
        super().__init__(task)
        self.options, self.normalises_itself = options, normalises_itself
        self.learned_log_z: Optional[nn.Parameter] = None
        if options.learn_log_z:
            # Not the whole of log Z, which halves round. (1,): legacy_ddp can't reduce a scalar.
            self.learned_log_z = nn.Parameter(torch.zeros(1))
        self.continued: Optional[Restored] = None
        self.state = ScoringState(task.state.state_dict)
        if self.state.log_z is not None:  # fairseq-validate has loaded the model already
            self.start_at(self.state.log_z, "from the checkpoint")
            return
        self.continued = found = restored(options.checkpoint)
        self.start_at(options.log_z, "--log-z auto" if options.log_z is None else "--log-z")
        log_z = None if found is None else found.state.log_z
        if options.log_z is None and found is not None and log_z is not None:
            self.start_at(log_z, f"from {found.path}")
        # mu_z and sigma_z are measured from log Z, or from 0 for losses that do not normalise.
        measured_from = self.start if normalises_itself else None
        if not self.is_unknown and log_z == measured_from:
            self._keep_normaliser()

    @property
    def log_z(self) -> float:
        """Return the constant log Z, nats; 0 until known, and for losses that do not normalise."""
        learned = 0.0 if self.learned_log_z is None else self.learned_log_z.item()
        return self.known_start + learned

    def start_at(self, value: Optional[float], origin: str) -> None:
        """Let log Z start at a value, in nats; None: it has to be measured."""
        self.start, self.origin = value, origin
        self.known_start = (value or 0.0) if self.normalises_itself else 0.0

    @property
    def is_unknown(self) -> bool:
        """Return whether log Z has to be measured."""
        return self.normalises_itself and self.start is None

    def _keep_normaliser(self) -> None:
        """Keep mu_z and sigma_z of the checkpoint; the next validation replaces them."""
        if self.continued is not None and not self.options.disable_validation:
            kept = self.continued.state
            self.state.mu_z, self.state.sigma_z = kept.mu_z, kept.sigma_z

    def measure_log_z(self, values: Tensor) -> None:
        """Start at the rounded mean of log Z_c of all ranks' first batches, if any has a token.

        Args:
            values: (M,) log Z_c of this rank's contexts, nats; M may be 0.

        Raises:
            ValueError: for a mean that is not finite.
        """
        sums = [values.sum(dtype=torch.float64), values.new_tensor(len(values)).double()]
        total, count = ranks.total(torch.stack(sums)).tolist()
        if count:
            mean = total / count
            required = "a number: log Z_c of the first batch is not finite"
            require("--log-z", required, f"auto, which measured {mean}", math.isfinite(mean))
            origin = f"{self.origin}: measured, the mean log Z_c of the first batch"
            self.start_at(round(mean, 2), origin)

    def save_log_z(self) -> None:
        """Put log Z into the task's state, if scores come near it."""
        if self.normalises_itself and not self.is_unknown:
            self.state.log_z = float(self.log_z)

    def get_extra_state(self) -> Dict[str, Optional[float]]:
        """Return what is saved beside the parameters.

        A checkpoint's task state is saved after it: other tasks learn of log Z here.
        """
        self.save_log_z()
        return {"initial_log_z": self.start}

    def set_extra_state(self, state: Dict[str, Optional[float]]) -> None:
        """Go on from a checkpoint with a learned log Z."""
        start = state["initial_log_z"]
        if start is not None:  # None if it was saved before the first batch
            self.start_at(start, f"learned in the checkpoint, from {start:g} on")
            self._keep_normaliser()

    def load_state_dict(self, state_dict: Optional[Dict], *args: object, **kwargs: object) -> Any:
        """Load a checkpoint's state; None, of a training that learned no log Z, changes nothing.

        Old checkpoints hold no start: their ``learned_log_z`` is log Z itself.
        """
        if state_dict is None:
            return None
        state = {"_extra_state": {"initial_log_z": 0.0}, **state_dict}
        state["learned_log_z"] = state["learned_log_z"].reshape(1)
        return super().load_state_dict(state, *args, **kwargs)
