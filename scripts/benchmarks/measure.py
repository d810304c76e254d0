#!/usr/bin/env python3
"""Measure a training update from within, or a bare output layer. Writes a JSON file:

    measure.py update --out FILE [--updates N --seconds S]  DATA [flags of fairseq-train]
    measure.py layer --out FILE [--updates N --seconds S] --system NAME --recipe NAME
                     [--sentences B] --user-dir DIR --device cpu|cuda  DATA
    measure.py device --out FILE

A command of its own, so that bench_vocab.py, whose children's peak memory is measured, imports no
torch.
"""

import argparse
import json
import statistics
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
from fairseq import options as fairseq_options
from fairseq import tasks, utils
from fairseq.data import iterators
from fairseq.data.indexed_dataset import MMapIndexedDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import memory, systems  # noqa: E402

PHASES = ("features", "output layer", "backward", "clip", "optimiser", "other")
LEAST_TIMED, LEAST_WARM, LEAST_TRACED, MOST_TRACED = 3, 1, 1, 10


def device() -> Dict[str, Optional[str]]:
    """The accelerator's name, None without one."""
    return {"cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


class Clock:
    """Seconds of each phase: time goes to the phase that was switched to last."""

    def __init__(self, synchronise: Callable[[], None]):
        self._synchronise = synchronise
        self.seconds: Dict[str, float] = {}
        self._phase, self._since = "other", 0.0

    def start(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.switch("other")
        self.seconds["other"] = 0.0

    def switch(self, phase: str) -> None:
        self._synchronise()
        now = time.perf_counter()
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
    """
    parser = _parser("update")
    options, flags = parser.parse_known_args(arguments)
    trainer, batches = _trainer(flags)
    clock = Clock(_synchroniser(trainer.cuda))
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
        return memory.peak_bytes(lambda: trainer.train_step(samples, raise_oom=True), trainer.cuda)

    times = _after_warm_up(timed_update, options)
    peaks = repeat(traced_update, MOST_TRACED, options.seconds / 10, LEAST_TRACED)
    return {
        "milliseconds": {p: 1000 * statistics.median(t[p] for t in times) for p in PHASES},
        "update_ms": 1000 * statistics.median(sum(t.values()) for t in times),
        "updates": len(times),
        "peak_bytes": statistics.median(peaks),
        "peaks_bytes": peaks,
        "parameter_bytes": _bytes(trainer.model.parameters()),
        "state_bytes": _bytes(_state(trainer.optimizer.optimizer)),
        "distinct_targets": statistics.fmean(words),
    }


def layer(arguments: List[str]) -> Dict[str, Any]:
    """Milliseconds and peak memory of a bare output layer: forward, backward, and SGD's update.

    Targets are those of the data's first batches, one batch a call; features are random.
    """
    parser = _parser("layer")
    for name in ("--system", "--recipe", "--user-dir", "--device"):
        parser.add_argument(name, required=True)
    parser.add_argument("--sentences", type=int)
    parser.add_argument("data", type=Path)
    options = parser.parse_args(arguments)
    utils.import_user_module(options)
    recipe = systems.RECIPES[options.recipe].with_sentences(options.sentences)
    where = torch.device(options.device)
    torch.manual_seed(1)
    step, targets = _layer(systems.SYSTEMS[options.system], recipe, options.data, where)
    features = torch.randn(recipe.targets, recipe.features, device=where)
    turns, synchronise = count(), _synchroniser(where.type == "cuda")

    def call() -> None:
        step(features, targets[next(turns) % len(targets)])

    seconds = _after_warm_up(lambda: _seconds(call, synchronise), options)
    traced = repeat(
        lambda: memory.peak_bytes(call, where.type == "cuda"),
        MOST_TRACED,
        options.seconds / 10,
        LEAST_TRACED,
    )
    return {
        "ms": 1000 * statistics.median(seconds),
        "calls": len(seconds),
        "peak_bytes": statistics.median(traced),
    }


def repeat(action: Callable[[], Any], most: int, seconds: float, least: int) -> List[Any]:
    """What ``action`` returned, for as long as ``seconds`` last, at least and at most so often."""
    end = time.perf_counter() + seconds
    found: List[Any] = []
    while len(found) < least or (len(found) < most and time.perf_counter() < end):
        found.append(action())
    return found


def _after_warm_up(action: Callable[[], Any], options: argparse.Namespace) -> List[Any]:
    start = time.perf_counter()
    warm = repeat(action, options.updates // 10, options.seconds / 10, LEAST_WARM)
    if time.perf_counter() - start > options.seconds:  # one so slow needs none
        return warm
    return repeat(action, options.updates, options.seconds, LEAST_TIMED)


def _trainer(flags: List[str]) -> Tuple[Trainer, Iterator[List[Dict[str, Any]]]]:
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


def _layer(system: systems.System, recipe: systems.Recipe, data: Path, where: torch.device):
    """(layer, its targets (batches, N))."""
    from benchmarks import layers  # imports the plugin, which comes with --user-dir
    from fairseq_bnce.noise import NoiseDistribution

    dataset = MMapIndexedDataset(str(data / "train"))
    tokens = torch.cat([dataset[item] for item in range(len(dataset))]).long()
    with (data / "dict.txt").open(encoding="utf-8") as lines:
        vocab = 4 + sum(1 for _ in lines)  # the specials have no line
    noise = NoiseDistribution(torch.bincount(tokens, minlength=vocab)).to(where)
    whole = len(tokens) // recipe.targets * recipe.targets
    targets = tokens[:whole].view(-1, recipe.targets).to(where)
    return layers.make(system, noise, recipe.features, where), targets


def _state(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    values = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if torch.is_tensor(value)]


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _seconds(action: Callable[[], None], synchronise: Callable[[], None]) -> float:
    synchronise()
    start = time.perf_counter()
    action()
    synchronise()
    return time.perf_counter() - start


def _synchroniser(cuda: bool) -> Callable[[], None]:
    return torch.cuda.synchronize if cuda else lambda: None


def _parser(measure: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"measure.py {measure}", allow_abbrev=False)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0)
    return parser


def main(arguments: List[str]) -> None:
    """Write what a measure finds to the file after ``--out``."""
    measures = {"update": update, "layer": layer, "device": lambda _: device()}
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("measure", choices=sorted(measures))
    parser.add_argument("--out", type=Path, required=True)
    known, others = parser.parse_known_args(arguments)
    found = measures[known.measure](others)
    known.out.write_text(json.dumps(found), encoding="utf-8")


def cli_main() -> None:
    main(sys.argv[1:])


if __name__ == "__main__":
    cli_main()
