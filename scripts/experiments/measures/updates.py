"""Measures of a training update: its phases from within, its parts one by one."""

from __future__ import annotations

import argparse
import statistics
import sys
from functools import partial
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq import options as fairseq_options
from fairseq.data import iterators
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from . import meter
from .meter import timer

PHASES = ("features", "output layer", "backward", "clip", "optimiser", "other")
WARM_UP = 5  # batches before the clock of a profile


class Clock:
    """Seconds of each phase: time goes to the phase that was switched to last."""

    def __init__(self) -> None:
        self.seconds: Dict[str, float] = {}
        self._phase, self._since = "other", 0.0

    def start(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.switch("other")
        self.seconds["other"] = 0.0

    def switch(self, phase: str) -> None:
        now = timer()
        self.seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def during(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, its time counted to ``phase``."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.switch(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch("other")

        return timed

    def watch(self, trainer: Trainer) -> None:
        """Switch phases from within the trainer's own train_step."""
        model, criterion, optimizer = trainer.model, trainer.criterion, trainer.optimizer
        criterion.register_forward_pre_hook(lambda *_: self.switch("features"))
        model.register_forward_hook(lambda *_: self.switch("output layer"))
        for projection in _projections(model):
            projection.register_forward_pre_hook(lambda *_: self.switch("output layer"))
        criterion.register_forward_hook(lambda *_: self.switch("other"))
        optimizer.backward = self.during("backward", optimizer.backward)
        for name, phase in (
            ("multiply_grads", "clip"),
            ("clip_grad_norm", "clip"),
            ("step", "optimiser"),
            ("zero_grad", "optimiser"),
        ):
            setattr(optimizer, name, self.during(phase, getattr(optimizer, name)))


def _projections(model: torch.nn.Module) -> List[torch.nn.Module]:
    """What ends the features where the model goes on to scores: of softmax models alone.

    Under this plugin's criteria the model's forward ends before its projection, and with an
    adaptive softmax, too.
    """
    found = [getattr(model.decoder, name, None) for name in ("fc_out", "output_projection")]
    return [module for module in found if isinstance(module, torch.nn.Module)]


def update(arguments: List[str]) -> Dict[str, Any]:
    """Phases of fairseq's own train_step, and its peak memory.

    Milliseconds are medians over updates after a warm-up, of each phase and of the whole. The
    memory is traced on further updates: what is held beyond parameters and optimiser state,
    gradients included, from the moment at which the last update's gradients are gone.

    Args:
        arguments: limits, data and flags of fairseq-train.
    """
    options, flags = meter.limits("update").parse_known_args(arguments)
    trainer, batches = build_trainer(flags)
    clock = Clock()
    clock.watch(trainer)
    words: List[int] = []

    def timed_update() -> Dict[str, float]:
        samples = next(batches)
        words.append(len(torch.unique(samples[0]["target"])))
        clock.start()
        trainer.train_step(samples, raise_oom=True)
        clock.switch("other")
        return dict(clock.seconds)

    def traced_update() -> int:
        samples = next(batches)
        trainer.zero_grad()
        return meter.peak_bytes(lambda: trainer.train_step(samples, raise_oom=True), trainer.cuda)

    times = meter.after_warm_up(timed_update, options.updates, options.seconds)
    peaks = meter.peaks(traced_update, options.seconds)
    return {
        "milliseconds": {p: 1000 * statistics.median(t[p] for t in times) for p in PHASES},
        "update_ms": 1000 * statistics.median(sum(t.values()) for t in times),
        "updates": len(times),
        "peak_bytes": statistics.median(peaks),
        "peaks_bytes": peaks,
        "distinct_targets": statistics.fmean(words),
        **_sizes(trainer),
    }


def build_trainer(flags: List[str]) -> Tuple[Trainer, Iterator[List[Dict[str, Any]]]]:
    """A trainer and its batches, made as fairseq-train makes them."""
    sys.argv = ["fairseq-train", *flags]  # the parser looks there for --user-dir
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser))
    np.random.seed(cfg.common.seed)
    utils.set_torch_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    trainer.cuda_env = None  # train_step would reset the peak of the GPU's memory
    epoch = trainer.get_train_iterator(epoch=1)
    batches = iterators.GroupedIterator(epoch.next_epoch_itr(shuffle=True), 1)
    trainer.begin_epoch(1)
    return trainer, iter(batches)


def _sizes(trainer: Trainer) -> Dict[str, int]:
    """Of parameters and optimiser state."""
    states = trainer.optimizer.optimizer.state.values()
    tensors = [value for state in states for value in state.values() if torch.is_tensor(value)]
    parts = {"parameter_bytes": trainer.model.parameters(), "state_bytes": tensors}
    return {name: sum(t.numel() * t.element_size() for t in some) for name, some in parts.items()}


class Update:
    """The parts of one training update of a trained model, each under a clock.

    Args:
        options: the command line's.
    """

    def __init__(self, options: argparse.Namespace):
        (model,), cfg, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [options.checkpoint], arg_overrides={"data": options.data}
        )
        criterion = self.task.build_criterion(cfg.criterion)
        self.trainer = Trainer(cfg, self.task, model, criterion)
        epoch = self.trainer.get_train_iterator(epoch=1)
        count = WARM_UP + options.batches
        batches = islice(epoch.next_epoch_itr(shuffle=True), count)
        self.batches = [self.trainer._prepare_sample(batch)[0] for batch in batches]
        self.clip_norm = cfg.optimization.clip_norm
        self.trainer.model.train()

    def times(self) -> Dict[str, List[float]]:
        """Seconds of each part, for each batch past the warm-up."""
        parts: Dict[str, List[float]] = {"features": [], "criterion": [], "optimiser": []}
        for sample in self.batches:
            self.trainer.zero_grad()
            parts["features"].append(meter.seconds(partial(self._features, sample)))
            self.trainer.zero_grad()
            parts["criterion"].append(meter.seconds(partial(self._criterion, sample)))
            parts["optimiser"].append(meter.seconds(self._step))
        return {name: seconds[WARM_UP:] for name, seconds in parts.items()}

    def _features(self, sample: Dict[str, Any]) -> None:
        """Forward to what goes into the output projection, and back from a dummy loss."""
        from fairseq_bnce.output_layer.layer import OutputLayer

        model = self.trainer.model
        features = OutputLayer(model).features(model, sample["net_input"])
        features.backward(torch.ones_like(features))

    def _criterion(self, sample: Dict[str, Any]) -> None:
        trainer, task = self.trainer, self.task
        _, self.sample_size, _ = task.train_step(
            sample, trainer.model, trainer.criterion, trainer.optimizer, trainer.get_num_updates()
        )

    def _step(self) -> None:
        optimizer = self.trainer.optimizer
        optimizer.multiply_grads(1 / self.sample_size)
        self.trainer.clip_grad_norm(self.clip_norm)
        self.task.optimizer_step(optimizer, self.trainer.model, self.trainer.get_num_updates())
        self.trainer.zero_grad()


def profile(arguments: List[str]) -> Dict[str, Any]:
    """The share of an update's time that the output layer takes.

    Three parts are timed on the same training batches, in turn: (a) features alone, forward and
    backward from a dummy loss; (b) forward and backward of the criterion; (c) scaling and clipping
    of the gradients, the optimiser's step and zero_grad. Medians over the batches; the output
    layer's share is (b - a) / (b + c).
    """
    options = _profile_options(arguments)
    utils.import_user_module(options)
    torch.manual_seed(1)
    update = Update(options)
    rounds = [update.times() for _ in range(options.repeats)]
    parts = {name: [s for r in rounds for s in r[name]] for name in rounds[0]}
    return {
        "share": _share(parts),
        "share_by_round": [_share(r) for r in rounds],
        "milliseconds": {name: 1000 * statistics.median(s) for name, s in parts.items()},
        "batches": len(parts["features"]) // options.repeats,
        "repeats": options.repeats,
    }


def _share(parts: Dict[str, List[float]]) -> float:
    a, b, c = (statistics.median(parts[name]) for name in ("features", "criterion", "optimiser"))
    return (b - a) / (b + c)


def _profile_options(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="measure.py profile")
    for name in ("--data", "--user-dir", "--checkpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args(arguments)
