"""The values of a criterion's flags, read from fairseq's configuration and checked together.

All that is wrong is reported in one message, when the criterion is built: before any data are read.
"""

import dataclasses
import math
import re
from argparse import Namespace
from typing import Any, Callable, List, Optional, Sequence

from fairseq.dataclass.configs import FairseqConfig, FairseqDataclass
from fairseq.optim import OPTIMIZER_REGISTRY
from omegaconf import DictConfig

from fairseq_bnce.criterions.options import PENALTY_ALPHA, RANKING_ALPHA
from fairseq_bnce.errors import FlagsError, require
from fairseq_bnce.optim.registered import RowSparseFairseqOptimizer
from fairseq_bnce.optim.update_rules import SparseSGD
from fairseq_bnce.output_layer.layer import refuse_fully_sharded
from fairseq_bnce.text.numerals import decimal

_MOST = 1_000_000  # of noise draws, or tokens in a group: more is a slip of the keyboard
_NUMBER = "[0-9]{1,7}"  # str.isdigit() holds for "²", too
_INTERPOLATION = re.compile(r"\$\{([\w.]+)\}")

# The value where a criterion has no such flag.
_OFF = {
    "noise": "unigram",
    "noise_power": 1.0,
    "noise_samples": None,
    "noise_samples_by_epoch": None,
    "self_norm_alpha": 0.0,
    "self_norm_alpha_by_epoch": None,
    "row_sparse": False,
    "learn_log_z": False,
    "score_squashing": False,
    "bnce_group": "batch",
    "gather_noise": False,
    "nce_base": None,
    "objective": None,
    "self_norm_rate": 1.0,
}
# The optimiser that comes nearest to one of fairseq's.
_NEAREST = {"adagrad": "sparse_adagrad", "sgd": "sparse_sgd", "nag": "sparse_sgd"}


class _Problems(List[str]):
    """What is wrong, one line a flag."""

    def require(self, name: str, required: str, got: object, fits: bool) -> None:
        """Note the flag of the field ``name`` unless ``fits``."""
        got = repr(got) if isinstance(got, str) else got
        self.of(require, f"--{name.replace('_', '-')}", required, got, fits)

    def of(self, check: Callable[..., Any], *arguments: Any) -> None:
        """Note the ValueError of a check that raises one."""
        try:
            check(*arguments)
        except ValueError as error:
            self.append(str(error))


def options(config: Any, kind: type, task: Optional[type] = None) -> Namespace:
    """The values of a criterion's flags, checked; ``_OFF`` where it has no such flag.

    Args:
        config: of one criterion, in any container of fairseq's.
        kind: its dataclass.
        task: the class of the task that is to train; None leaves out what concerns training alone.

    Raises:
        FlagsError: with a line for each flag: what was required, what came and the remedy.
    """
    config = resolved(config)
    names = [f.name for f in dataclasses.fields(kind) if f.name != "_name"]
    values = Namespace(**{**_OFF, **{name: getattr(config, name) for name in names}})
    problems = _Problems()
    for name, (required, fits) in _REQUIRED.items():
        value = getattr(values, name, None)
        if name in names and value is not None:
            problems.require(name, required, value, fits(value))
    problems.of(draws_by_epoch, values.noise_samples, values.noise_samples_by_epoch)
    _check_together(values, problems)
    if task is not None:
        _check_training(values, task, whole(config), problems)
    if problems:
        raise FlagsError(problems)
    if values.self_norm_alpha is None:
        values.self_norm_alpha = RANKING_ALPHA if values.objective == "ranking" else 0.0
    return values


def whole(config: Any) -> Any:
    """fairseq's whole configuration, of which ``config`` is a part; None for a part on its own."""
    return config._get_root() if isinstance(config, DictConfig) else None


def at(config: Any, path: str) -> Any:
    """The value at a path such as ``optimizer.weight_decay``; None where there is none.

    Not by OmegaConf.select: fairseq keeps the flags of some of its optimisers in a Namespace.
    """
    for name in path.split("."):
        config = getattr(config, name, None)
    return config


def resolved(config: Any) -> Any:
    """The same, but in a part on its own with fairseq's defaults for values of other parts.

    A dataclass that fairseq makes from a Namespace has strings such as
    ``${distributed_training.ddp_backend}`` for these. Those of ``checkpoint`` become empty: there
    is no folder of checkpoints that it belongs to.
    """
    if not isinstance(config, FairseqDataclass):
        return config
    defaults, changed = FairseqConfig(), {}
    for name in (f.name for f in dataclasses.fields(config)):
        value = getattr(config, name)
        while isinstance(value, str) and _INTERPOLATION.fullmatch(value):
            path = value[2:-1]
            value = "" if path.startswith("checkpoint.") else at(defaults, path)
            changed[name] = value
    return dataclasses.replace(config, **changed)


def draws_by_epoch(count: Optional[int], by_epoch: Optional[str]) -> List[Optional[int]]:
    """What the two flags of noise samples say; None is for the loss to decide.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """
    if by_epoch is None:
        fits = 0 <= (count or 0) <= _MOST
        require("--noise-samples", f"at least 0 and at most {_MOST:,}", count, fits)
        return [count]
    require("--noise-samples", "none beside --noise-samples-by-epoch", count, count is None)
    fits = re.fullmatch(f"{_NUMBER}(,{_NUMBER})*", by_epoch) is not None
    numbers = [int(number) for number in by_epoch.split(",")] if fits else []
    required = f"numbers of at least 0 with commas between them, at most {_MOST:,}"
    fits = fits and max(numbers) <= _MOST
    require("--noise-samples-by-epoch", required, repr(by_epoch), fits)
    return list(numbers)


def alphas_by_epoch(alpha: float, by_epoch: Optional[str]) -> List[float]:
    """What the two flags of the penalty's weight say.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """
    if by_epoch is None:
        return [alpha]
    numbers = [decimal(number) for number in by_epoch.split(",")]
    alphas = [number for number in numbers if number is not None and _from_zero(number)]
    required = "finite numbers of at least 0 with commas between them"
    fits = len(alphas) == len(numbers)
    require("--self-norm-alpha-by-epoch", required, repr(by_epoch), fits)
    return alphas


def of_epoch(values: Sequence[Any], epoch: int) -> Any:
    """That of an epoch, counted from 1; the last one holds on."""
    return values[min(epoch, len(values)) - 1]


def _from_zero(number: float) -> bool:
    return math.isfinite(number) and number >= 0


def _is_group(group: str) -> bool:
    size = int(group) if re.fullmatch(_NUMBER, group) else 0
    return group in ("batch", "time") or 2 <= size <= _MOST


# By field: what is required, and whether a value is that.
_REQUIRED = {
    "valid_partition_rate": ("from 0 to 1", lambda rate: 0 <= rate <= 1),
    "noise_power": ("a finite number of at least 0", _from_zero),
    "self_norm_alpha": ("a finite number of at least 0", _from_zero),
    "self_norm_rate": ("above 0 and at most 1", lambda rate: 0 < rate <= 1),
    "bnce_group": (f"'batch', 'time' or a size of at least 2, at most {_MOST:,}", _is_group),
}


def _check_together(values: Namespace, problems: _Problems) -> None:
    """Flags that others make meaningless."""
    is_batch, gathers = values.bnce_group == "batch", values.gather_noise
    fits = is_batch or not gathers
    problems.require("bnce_group", "'batch' with --gather-noise", values.bnce_group, fits)
    base = str(values.nce_base)
    fits = base in ("None", "bnce") or (is_batch and not gathers)
    problems.require("nce_base", "bnce with --bnce-group or --gather-noise", base, fits)
    objective = str(values.objective)
    has_penalty = objective != "binary"
    fits = has_penalty or values.self_norm_alpha_by_epoch is None
    required = "--objective ranking, which has the penalty"
    problems.require("self_norm_alpha_by_epoch", required, objective, fits)
    # Checkpoints of before have the default of ranking whatever their objective.
    alpha = values.self_norm_alpha
    fits = has_penalty or alpha in (None, RANKING_ALPHA)
    problems.require("self_norm_alpha", f"{required} (or --criterion nce_regularized)", alpha, fits)


def _check_training(values: Namespace, task: type, config: Any, problems: _Problems) -> None:
    """What fairseq-validate has no use for."""
    _check_task(values, task, problems)
    _check_metric(values, problems)
    problems.of(_check_penalty, values)
    _check_halves(values, problems)
    _check_ranks(values, config, problems)
    if values.row_sparse:
        required = "off: the penalty's gradient has every row"
        problems.require("row_sparse", required, "on", values.nce_base is None)
        _check_flattening(values, problems)
        _check_optimizer(at(config, "optimizer"), problems)
        _check_whole_updates(config, problems)


def _check_task(values: Namespace, task: type, problems: _Problems) -> None:
    """Flags that only this plugin's task carries out, which prepares the model."""
    epochs = {name: getattr(values, name) or "" for name in _OFF if name.endswith("_by_epoch")}
    given = {name: "," in value for name, value in epochs.items()}
    for name in ("row_sparse", *given, "score_squashing"):
        fits = hasattr(task, "trains") or not given.get(name, getattr(values, name))
        flag = f"--{name.replace('_', '-')}"
        problems.of(require, flag, "--task language_modeling", task.__name__, fits)


def _check_penalty(values: Namespace) -> None:
    """Its weight: in one flag, and above 0 where nothing else bounds the objective."""
    alpha, by_epoch = values.self_norm_alpha, values.self_norm_alpha_by_epoch
    default = PENALTY_ALPHA if values.objective is None else RANKING_ALPHA
    required = "none beside --self-norm-alpha-by-epoch"
    fits = by_epoch is None or alpha in (default, None)
    require("--self-norm-alpha", required, alpha, fits)
    # The unnormalised likelihood grows with the scores of targets, without end.
    is_bounded = values.nce_base is not None or values.self_norm_rate == 1
    flag = "--self-norm-alpha" if by_epoch is None else "--self-norm-alpha-by-epoch"
    least = min(alphas_by_epoch(default if alpha is None else alpha, by_epoch))
    require(flag, "above 0 with --self-norm-rate below 1", least, is_bounded or least > 0)


def _check_metric(values: Namespace, problems: _Problems) -> None:
    """At the first validation, before anything is saved, fairseq would find that there is none."""
    name, rate = values.best_checkpoint_metric, values.valid_partition_rate
    needs_contexts = name in ("ppl", "mu_z", "sigma_z", "ppl_se")
    is_missing = (rate == 0 and needs_contexts) or (rate == 1 and name == "ppl_se")
    is_missing |= name == "nll_loss" and not values.sentence_avg  # loss is the same then
    required = f"what is logged under --valid-partition-rate {rate:g} (loss, u_ppl)"
    problems.require("best_checkpoint_metric", required, name, not is_missing)


def _check_halves(values: Namespace, problems: _Problems) -> None:
    """Without the flag of a precision fairseq trains in float32, whatever it is to save."""
    for half in ("fp16", "bf16"):
        required = f"--{half} beside it (common.{half}=true, which fairseq-hydra-train leaves out)"
        fits = getattr(values, half) or not getattr(values, f"memory_efficient_{half}")
        problems.of(require, f"--memory-efficient-{half}", required, "none", fits)


def _check_ranks(values: Namespace, config: Any, problems: _Problems) -> None:
    """What keeps the output layer from being used outside of the model's forward pass."""
    if values.ddp_backend == "fully_sharded":
        problems.of(refuse_fully_sharded)
    training = at(config, "distributed_training")
    is_wrapped = (at(training, "distributed_world_size") or 1) > 1
    forbids = values.ddp_backend in ("c10d", "pytorch_ddp")
    fits = not (is_wrapped and forbids and at(training, "find_unused_parameters"))
    required = (
        "off with --ddp-backend pytorch_ddp (the projection is used outside of the model's "
        "forward, which that option forbids)"
    )
    got = "on: leave it out, or write --ddp-backend legacy_ddp"
    problems.of(require, "--find-unused-parameters", required, got, fits)


def _check_flattening(values: Namespace, problems: _Problems) -> None:
    in_place = values.memory_efficient_fp16 or values.memory_efficient_bf16
    for half in ("fp16", "bf16"):
        required = f"--memory-efficient-{half}, --amp or float32 with --row-sparse"
        got = (
            f"--{half} alone, which copies every parameter and gradient whole at each update: "
            f"write --memory-efficient-{half}"
        )
        problems.of(require, f"--{half}", required, got, in_place or not getattr(values, half))


def _check_optimizer(config: Any, problems: _Problems) -> None:
    name = at(config, "_name")
    known = OPTIMIZER_REGISTRY.get(name, RowSparseFairseqOptimizer)
    required = "sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam with --row-sparse"
    got = (
        f"{name}, which does not take row-sparse gradients: write "
        f"--optimizer {_NEAREST.get(str(name), 'lazy_adam')}"
    )
    fits = isinstance(known, type) and issubclass(known, RowSparseFairseqOptimizer)
    problems.of(require, "--optimizer", required, got, fits)
    for option, reason in SparseSGD.dense_only.items():
        value = at(config, option) or 0
        flag = f"--{option.replace('_', '-')}"
        problems.of(require, flag, "0 with --row-sparse", f"{value}: {reason}", value == 0)


def _check_whole_updates(config: Any, problems: _Problems) -> None:
    reason = "it passes over every row at every update: leave it out, or train without --row-sparse"
    for flag, path in (("--store-ema", "ema.store_ema"), ("--use-bmuf", "optimization.use_bmuf")):
        problems.of(require, flag, "off with --row-sparse", f"on: {reason}", not at(config, path))
