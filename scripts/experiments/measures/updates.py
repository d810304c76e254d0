"""A training update: the time of its phases, and its memory."""

import itertools
import statistics
import sys
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import torch
from fairseq import options as fairseq_options
from fairseq import tasks, utils
from fairseq.data import iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from . import meter

PHASES = ("features", "layer", "optimiser", "other")
LEAST_CALLS = 3
MOST_TRACED = 10  # updates whose memory is traced


class Clock:
    """Seconds of each phase: time goes to the phase that was switched to last."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._phase, self._since = "other", meter.timer()

    def switch(self, phase: str) -> None:
        now = meter.timer()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def during(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with its time counted to ``phase``."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.switch(phase)
            found = function(*args, **kwargs)
            self.switch("other")
            return found

        return timed

    def end_features(self, features: torch.Tensor) -> None:
        """Begin the output layer, whose backward pass ends when the features' gradient is known."""
        if self._phase == "features":
            self.switch("layer")
            features.register_hook(lambda gradient: self.switch("features"))

    def watch(self, trainer: Trainer) -> None:
        """Switch phases from within the trainer's own train_step.

        The features of a softmax model end before its projection. Under this plugin's criteria, and
        with an adaptive softmax, the model's forward ends with them.
        """
        model, criterion, optimizer = trainer.model, trainer.criterion, trainer.optimizer
        criterion.register_forward_pre_hook(lambda *_: self.switch("features"))
        for name in ("fc_out", "output_projection"):
            projection = getattr(model.decoder, name, None)
            if isinstance(projection, torch.nn.Module):
                projection.register_forward_pre_hook(lambda _, got: self.end_features(got[0]))
        model.register_forward_hook(lambda _, __, got: self.end_features(got[0]))
        criterion.register_forward_hook(lambda *_: self.switch("other"))
        optimizer.backward = self.during("layer", optimizer.backward)
        for name in ("multiply_grads", "clip_grad_norm", "step", "zero_grad"):
            setattr(optimizer, name, self.during("optimiser", getattr(optimizer, name)))


def update(flags: List[str], updates: int, seconds: float = 60.0) -> Dict[str, Any]:
    """Measure the phases of fairseq's own train_step, and its peak memory.

    Milliseconds are medians over updates after a warm-up, of each phase and of the whole: features
    and output layer, forward and backward, and the optimiser with scaling and clipping. The memory
    is traced on further updates: what is held beyond parameters and optimiser state, gradients
    included, from the moment at which the last update's gradients are gone.

    Args:
        flags: data and flags of fairseq-train.
        updates, seconds: limits.
    """
    trainer, batches = build_trainer(flags)
    clock = Clock()
    clock.watch(trainer)

    def timed_update() -> Dict[str, float]:
        samples = next(batches)
        clock.start()
        trainer.train_step(samples, raise_oom=True)
        clock.switch("other")
        return dict(clock.seconds)

    def traced_update() -> int:
        samples = next(batches)
        trainer.zero_grad()
        return meter.peak_bytes(lambda: trainer.train_step(samples, raise_oom=True), trainer.cuda)

    start = meter.timer()
    times = meter.repeat(timed_update, updates // 10, seconds / 10, 1)  # to warm up
    if meter.timer() - start <= seconds:  # one so slow needs none
        times = meter.repeat(timed_update, updates, seconds, LEAST_CALLS)
    peaks = meter.repeat(traced_update, MOST_TRACED, seconds / 10, 1)
    return {
        "milliseconds": {p: 1000 * statistics.median(t[p] for t in times) for p in PHASES},
        "update_ms": 1000 * statistics.median(sum(t.values()) for t in times),
        "updates": len(times),
        "peak_bytes": statistics.median(peaks),
    }


def build_trainer(flags: List[str]) -> Tuple[Trainer, Iterator[List[Dict[str, Any]]]]:
    """Return a trainer and its batches, epoch after epoch, made as fairseq-train makes them."""
    sys.argv = ["fairseq-train", *map(str, flags)]  # the parser looks there for --user-dir
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser))
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.cuda_env = None  # train_step would reset the peak of the GPU's memory
    return trainer, _batches(trainer)


def _batches(trainer: Trainer) -> Iterator[List[Dict[str, Any]]]:
    for number in itertools.count(1):
        epoch = trainer.get_train_iterator(epoch=number)
        trainer.begin_epoch(number)
        yield from iterators.GroupedIterator(epoch.next_epoch_itr(shuffle=True), 1)
