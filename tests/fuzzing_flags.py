"""Values that no flag was made for, by seed: every flag of our criteria, optimisers and models.

The flags are those of the dataclasses that are registered, so that a new one is fuzzed, too. A
case goes the way of fairseq-train: argparse, the configuration, and what is built of it.
"""

import argparse
import copy
import functools
import random
from dataclasses import fields
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from fairseq import optim
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY
from omegaconf import OmegaConf
from tools import build

FLOATS = ["0", "1", "-1", "0.5", "2", "1e-300", "1e39", "-1e308", "nan", "inf", "-inf", "x", ""]
INTS = ["0", "1", "2", "7", "-1", "1000000000000", "9" * 20, "x", "", "1.5", "\xb2"]
TEXTS = ["batch", "time", "2", "1", "\xb2", "9" * 20, "-1", "", "x", "auto", "none", "1e3", "0,0"]
TEXTS += ["3,0", "8,,9", "8,-9", "\xb2,1", "9" * 20 + ",1", "(0.9,0.99)", "0.9", "(1,1)", "(2,0)"]
TEXTS += ["(0.9,)", "()", "[0.9,0.9]", "(nan,0.9)", "(0.9,0.99,0.9)", "None", "{}", "(", "('a',1)"]
# What nothing can be built with, by flag; besides them, what is no finite number.
NEVER = {
    "--adam-betas": ["0.9", "x", "(1,1)", "(2,0)", "(nan,0.9)", "(0.9,)", "()", "[", ""],
    "--adam-eps": ["-1"],
    "--adagrad-eps": ["-1"],
    "--adagrad-initial-accumulator": ["-1"],
    "--bnce-group": ["\xb2", "9" * 20, "0", "-1", ""],
    "--context-size": ["0", "-1", "1000000000000"],
    "--decoder-embed-dim": ["0", "-1", "1000000000000"],
    "--decoder-layers": ["0", "-1", "1000000000000"],
    "--dropout": ["-1", "1", "2"],
    "--init-range": ["0", "-1"],
    "--noise-power": ["-1"],
    "--noise-samples": ["-1", "1000000000000"],
    "--self-norm-alpha": ["-1"],
    "--self-norm-rate": ["-1", "0", "2"],
    "--valid-partition-rate": ["-1", "2"],
}
KINDS = ["criterion", "optimizer", "arch"]
_SMALL = ["--decoder-embed-dim", "8"]


class Part(NamedTuple):
    """What flags configure: its name, their dataclass, and fairseq's own way to build it."""

    kind: str
    name: str
    config: type
    build: Callable[[Any, Any, Any], Any]


def _criterion(section: Any, task: Any, _: Any) -> Any:
    return task.build_criterion(section)


def _optimizer(section: Any, _: Any, model: Any) -> Any:
    return optim.build_optimizer(section, list(model.parameters()))


def _model(section: Any, task: Any, _: Any) -> Any:
    return task.build_model(section)


@functools.lru_cache(maxsize=None)
def parts() -> List[Part]:
    """All of this plugin."""
    registries = {
        "criterion": (CRITERION_DATACLASS_REGISTRY, _criterion),
        "optimizer": (OPTIMIZER_DATACLASS_REGISTRY, _optimizer),
        "arch": (MODEL_DATACLASS_REGISTRY, _model),
    }
    return [
        Part(kind, name, config, how)
        for kind, (registry, how) in registries.items()
        for name, config in sorted(registry.items())
        if config.__module__.startswith("fairseq_bnce")
    ]


@functools.lru_cache(maxsize=None)
def flags(part: Part) -> Dict[str, List[str]]:
    """The values that each of its own flags is tried with."""
    parser = argparse.ArgumentParser(add_help=False)
    gen_parser_from_dataclass(parser, part.config())
    own = {field.name for field in fields(part.config)}
    found = {}
    for action in parser._actions:
        if action.dest in own and action.nargs != 0:
            flag = action.option_strings[0]
            found[flag] = [*(action.choices or []), "x"] if action.choices else _values(action)
    return found


def never(part: Part) -> Dict[str, List[str]]:
    """The values that each of its flags has to refuse."""
    found = {}
    for flag, values in flags(part).items():
        no_numbers = ["nan", "inf", "-inf"] if values is FLOATS else []
        found[flag] = [*no_numbers, *NEVER.get(flag, [])]
    return found


def _values(action: argparse.Action) -> List[str]:
    return {int: INTS, float: FLOATS}.get(action.type, TEXTS)


def case(rng: random.Random, part: Part) -> List[str]:
    """One to three flags with values."""
    known = flags(part)
    chosen = rng.sample(sorted(known), min(len(known), rng.choice([1, 1, 1, 2, 3])))
    return [f"{flag}={rng.choice(known[flag])}" for flag in chosen]


def parsed(part: Part, arguments: List[str]) -> Dict[str, Any]:
    """What argparse makes of them; SystemExit if it refuses."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, add_help=False)
    gen_parser_from_dataclass(parser, part.config(), delete_default=True)
    given = vars(parser.parse_args(arguments))
    return {name: value for name, value in given.items() if value is not None}


_built: Dict[Tuple[str, ...], Any] = {}


def configured(part: Part, data: Any) -> Tuple[Any, Any, Any]:
    """(configuration, task, model) with this part in it and no flag of it given.

    Parts of a kind are combined with those of the others: making a configuration takes a while.
    """
    names = {kind: [p.name for p in parts() if p.kind == kind] for kind in KINDS}
    place = names[part.kind].index(part.name)
    chosen = [w for kind, n in names.items() for w in (f"--{kind}", n[place % len(n)])]
    key = (str(data), *chosen)
    if key not in _built:
        _built[key] = build(data, *chosen, *_SMALL, "--lr", "0.1")
    return _built[key]


def built(part: Part, arguments: List[str], data: Any) -> Any:
    """The object; SystemExit or ValueError where there can be none."""
    values = parsed(part, arguments)
    cfg, task, model = configured(part, data)
    whole = getattr(cfg, "model" if part.kind == "arch" else part.kind)
    section = copy.deepcopy(whole)
    section._set_parent(cfg)  # where its interpolations look
    OmegaConf.set_struct(section, False)
    for name, value in values.items():
        section[name] = value
    return part.build(section, task, model)
