"""The flags that several criteria take; their values, checked together.

One message reports every flag that is wrong, when the criterion is built: before any data are read.
"""

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.configs import CheckpointConfig, FairseqConfig
from fairseq.optim import OPTIMIZER_REGISTRY
from omegaconf import II, DictConfig, OmegaConf

from fairseq_bnce.errors import FlagsError
from fairseq_bnce.flag import flag
from fairseq_bnce.noise import KINDS
from fairseq_bnce.optim.registered import RowSparseFairseqOptimizer

RANKING_ALPHA = 0.1  # the default --self-norm-alpha of --objective ranking

# fairseq makes flags with choices of these types.
OutputBias: ChoiceEnum = ChoiceEnum(["none", "uniform", "unigram"])
Noise: ChoiceEnum = ChoiceEnum(list(KINDS))


@dataclass
class SelfNormalizingConfig(FairseqDataclass):
    """Flags of every criterion of this plugin."""

    log_z: str = flag(
        "auto",
        "the constant log Z, in nats: a number, or 'auto': that of the checkpoint that training "
        "continues from; else 0 where --init-output-bias sets an untrained model's scores; else "
        "the mean log Z_c of the first batch",
    )
    init_output_bias: OutputBias = flag(
        "unigram",
        "where an untrained model's output bias starts: none (the model's own start), uniform "
        "(-log V + log Z) or unigram (log q + log Z, the unigram model). In a transformer, a "
        "constant feature of its last layer normalisation serves as the bias",
    )
    valid_partition_rate: float = flag(
        1.0,
        "share of the validation contexts whose exact log Z_c is computed. Between 0 and 1, loss "
        "and ppl are estimates; at 0, loss is the unnormalised NLL",
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    ddp_backend: str = II("distributed_training.ddp_backend")
    train_subset: str = II("dataset.train_subset")
    disable_validation: bool = II("dataset.disable_validation")
    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    # Unused, but in the configuration of checkpoints, which fairseq-validate merges into this one.
    reset_optimizer: bool = II("checkpoint.reset_optimizer")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


@dataclass
class NoiseConfig(SelfNormalizingConfig):
    """Flags of every criterion with noise."""

    noise: Noise = flag(
        "unigram",
        "noise distribution: from the training counts, from their ranks (log-uniform) or uniform; "
        "bnce uses it only with --noise-samples",
    )
    noise_power: float = flag(1.0, "exponent on the counts of --noise unigram")
    noise_samples: Optional[int] = flag(
        None,
        "noise samples K: extra noise beside the batch's own targets (bnce; default 0), shared by "
        "the batch (shared_nce, sampled_bce, sampled_softmax; default 100) or fresh for every "
        "token (nce; default 100)",
    )
    noise_samples_by_epoch: Optional[str] = flag(
        None, "instead of --noise-samples: one for each epoch, as 800,800,4000; the last one stays"
    )
    row_sparse: bool = flag(
        False,
        "gradients and updates only for the rows that a batch touches; not for nce_regularized. "
        "Needs --optimizer sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam",
    )


@dataclass
class NoiseContrastiveConfig(NoiseConfig):
    """Flags of every criterion of the NCE family."""

    learn_log_z: bool = flag(False, "learn the constant log Z with the model, starting at --log-z")


@dataclass
class GroupConfig(NoiseContrastiveConfig):
    """Flags of the criteria whose noise are the batch's own targets."""

    bnce_group: str = flag(
        "batch",
        "which targets share noise in bnce: the whole batch, one time step ('time'), or random "
        "groups of SIZE tokens",
    )
    gather_noise: bool = flag(False, "use the other ranks' targets as noise too")


@dataclass
class PenaltyConfig(FairseqDataclass):
    """Flag of every criterion with an ``--self-norm-alpha``, whose default is the criterion's."""

    self_norm_alpha_by_epoch: Optional[str] = flag(
        None, "instead of --self-norm-alpha: one for each epoch, as 0.3,0.15; the last one stays"
    )


@dataclass(frozen=True)
class Options:
    """The values of a criterion's flags, and defaults for the flags that it does not have.

    ``log_z`` is None for auto. ``noise_samples`` and ``self_norm_alpha`` have a number for each
    epoch. ``checkpoint`` is fairseq's CheckpointConfig.
    """

    noise: str = "unigram"
    noise_power: float = 1.0
    noise_samples: Tuple[Optional[int], ...] = (None,)
    bnce_group: str = "batch"
    gather_noise: bool = False
    train_subset: str = "train"
    log_z: Optional[float] = None
    learn_log_z: bool = False
    disable_validation: bool = False
    checkpoint: Optional[CheckpointConfig] = None
    init_output_bias: str = "unigram"
    self_norm_alpha: Tuple[float, ...] = (0.0,)
    self_norm_rate: float = 1.0
    nce_base: Optional[str] = None
    objective: Optional[str] = None
    estimator: str = "complementary"
    score_squashing: bool = False
    row_sparse: bool = False
    valid_partition_rate: float = 1.0
    sentence_avg: bool = False
    ddp_backend: str = ""


Value = TypeVar("Value")
# The nearest optimiser under --row-sparse.
_ROW_SPARSE = {"adam": "lazy_adam", "adagrad": "sparse_adagrad", "sgd": "sparse_sgd"}
_ROW_SPARSE.update(nag="sparse_sgd", adamax="lazy_adam")
# Flags that only this plugin's task obeys.
_OF_TASK = ("row_sparse", "noise_samples_by_epoch", "self_norm_alpha_by_epoch", "score_squashing")


class _Problems(List[str]):
    """One line for each flag with a wrong value; ``better`` are flags to give instead."""

    def __init__(self) -> None:
        super().__init__()
        self.better: List[str] = []

    def require(
        self, name: str, required: str, got: object, fits: bool, better: Optional[str] = None
    ) -> None:
        """Add the flag of the field ``name`` unless ``fits``."""
        if not fits:
            self.append(f"--{name.replace('_', '-')}: required {required}, got {got}")
            self.better += [] if better is None else [better]


def read(config: FairseqDataclass, kind: type, task: Optional[type] = None) -> Options:
    """Return the values of a criterion's flags.

    Args:
        config: the configuration of the criterion.
        kind: its dataclass.
        task: the class of the task; None for a validation, which leaves out training's checks.

    Raises:
        FlagsError: with a line for each flag: what was required and what came.
    """
    names = [f.name for f in dataclasses.fields(Options) if hasattr(kind, f.name)]
    found = {name: getattr(config, name) for name in names}
    found = {n: str(value) if isinstance(value, Enum) else value for n, value in found.items()}
    found["checkpoint"] = config._get_root().checkpoint
    found["log_z"] = None if config.log_z == "auto" else _number(config.log_z, float)
    if found.get("self_norm_alpha", 0.0) is None:
        found["self_norm_alpha"] = RANKING_ALPHA if found["objective"] == "ranking" else 0.0
    for name, number in (("noise_samples", int), ("self_norm_alpha", float)):
        if name in names:
            found[name] = _by_epoch(found[name], getattr(config, f"{name}_by_epoch"), number)
    values, problems = Options(**found), _Problems()
    _check_ranges(values, config, kind, problems)
    if task is not None:
        _check_training(values, config, task, problems)
        _check_update(values, config, problems)
    if problems.better:
        problems.append(" ".join(["so, instead of these flags: --row-sparse", *problems.better]))
    if problems:
        raise FlagsError(problems)
    return values


def completed(config: FairseqDataclass, name: str) -> DictConfig:
    """Return ``config`` as the part ``name`` of fairseq's configuration, if it is not a part yet.

    A dataclass made from a Namespace holds strings such as ``${optimization.sentence_avg}``: they
    get fairseq's defaults, but no folder of checkpoints.
    """
    if not isinstance(config, FairseqDataclass):
        return config
    defaults = OmegaConf.structured(FairseqConfig())
    defaults.checkpoint.save_dir = defaults.checkpoint.restore_file = ""
    defaults[name] = config
    return defaults[name]


def value_at(values: Sequence[Value], epoch: int) -> Value:
    """Return the value of an epoch, counted from 1; the last value holds for all later epochs."""
    return values[min(epoch, len(values)) - 1]


def _by_epoch(value: object, text: Optional[str], kind: Callable[[str], float]) -> Tuple:
    return (value,) if text is None else tuple(_number(part, kind) for part in text.split(","))


def _number(text: str, kind: Callable[[str], float]) -> float:
    """Return the number that a text is; NaN for any other text."""
    try:
        return kind(text)
    except ValueError:
        return math.nan


def _check_ranges(values: Options, config: DictConfig, kind: type, problems: _Problems) -> None:
    """Check what changes the loss silently."""
    fits = values.log_z is None or math.isfinite(values.log_z)
    problems.require("log_z", "a finite number or 'auto'", config.log_z, fits)
    rate, share = values.valid_partition_rate, values.self_norm_rate
    problems.require("valid_partition_rate", "from 0 to 1", rate, 0 <= rate <= 1)
    problems.require("self_norm_rate", "above 0 and at most 1", share, 0 < share <= 1)
    group, gathers, base = values.bnce_group, values.gather_noise, values.nce_base
    required = "'batch' with --gather-noise" if gathers else "'batch', 'time' or a size above 1"
    fits = group == "batch" or not gathers and (group == "time" or _number(group, int) > 1)
    problems.require("bnce_group", required, group, fits)
    fits = base in (None, "bnce") or (group == "batch" and not gathers)
    problems.require("nce_base", "bnce with --bnce-group or --gather-noise", base, fits)
    has_targets = issubclass(kind, GroupConfig) and base in (None, "bnce")
    fewest = 1 if issubclass(kind, NoiseConfig) and not has_targets else 0
    for name, least in (("noise_samples", fewest), ("self_norm_alpha", 0)):
        fits = all(value is None or least <= value < math.inf for value in getattr(values, name))
        name += "" if getattr(config, f"{name}_by_epoch", None) is None else "_by_epoch"
        got = getattr(config, name, None)
        problems.require(name, f"finite numbers of at least {least}", got, fits)


def _check_training(values: Options, config: DictConfig, task: type, problems: _Problems) -> None:
    """Check what makes a training fail later, or go on without a flag that was given."""
    for name in _OF_TASK:
        fits = hasattr(task, "trains") or not getattr(config, name, None)
        problems.require(name, "--task language_modeling", task.__name__, fits)
    fits = values.noise_power == 1 or KINDS[values.noise].takes_power
    problems.require("noise_power", f"1 with --noise {values.noise}", values.noise_power, fits)
    alphas, is_binary = list(values.self_norm_alpha), values.objective == "binary"
    required = "--objective ranking, which has a penalty"
    problems.require("self_norm_alpha", required, alphas, not (is_binary and any(alphas)))
    # Without a penalty, the unnormalised likelihood grows with the targets' scores, without end.
    is_bounded = values.self_norm_rate == 1 or values.nce_base is not None
    required = "above 0 with --self-norm-rate below 1"
    problems.require("self_norm_alpha", required, alphas, is_bounded or min(alphas) > 0)
    metric, rate = config.best_checkpoint_metric, values.valid_partition_rate
    known = ["loss", "u_ppl", *["nll_loss"] * values.sentence_avg, *["ppl", "sigma_z"] * (rate > 0)]
    # A smaller mu_z is not better. Other tasks log numbers of their own, such as bleu.
    is_other = not (hasattr(task, "trains") or metric in ("ppl", "mu_z", "sigma_z", "ppl_se"))
    required = f"one of {', '.join(known)} with --valid-partition-rate {rate:g}"
    problems.require("best_checkpoint_metric", required, metric, is_other or metric in known)
    required = "off: the penalty's gradient has every row"
    is_on = values.row_sparse and values.nce_base is not None
    problems.require("row_sparse", required, "on", not is_on)


def _check_update(values: Options, config: DictConfig, problems: _Problems) -> None:
    """Check what would end a training at its first update; add the flags as they should be."""
    root = config._get_root()  # fairseq's whole configuration

    def chosen(field: str) -> Any:
        group, name = field.split(".")  # a group is None where a criterion is built without fairseq
        return getattr(getattr(root, group, None), name, None)

    no_fp16 = config.fp16 and (chosen("common.cpu") or not torch.cuda.is_available())
    half = "memory_efficient_fp16" if config.memory_efficient_fp16 else "fp16"
    problems.require(half, "float32 on a CPU: leave it out", "on", not no_fp16)
    if not values.row_sparse:
        return
    for half in ("bf16",) if no_fp16 else ("fp16", "bf16"):
        fits, better = not getattr(config, half), f"--memory-efficient-{half}"
        fits = fits or getattr(config, f"memory_efficient_{half}")
        problems.require(half, f"{better} with --row-sparse", "on", fits, better)
    name = chosen("optimizer._name")
    kind = OPTIMIZER_REGISTRY.get(name, RowSparseFairseqOptimizer)
    names = "sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam with --row-sparse"
    better = f"--optimizer {_ROW_SPARSE.get(name, 'sparse_adagrad')}"
    problems.require("optimizer", names, name, issubclass(kind, RowSparseFairseqOptimizer), better)
    for field, better in (("weight_decay", "--weight-decay 0"), ("momentum", "--momentum 0")):
        value = chosen(f"optimizer.{field}")
        problems.require(field, "0 with --row-sparse", value, not value, better)
    for field in ("ema.store_ema", "optimization.use_bmuf"):
        required = "off with --row-sparse: it passes over every row. Leave it out"
        problems.require(field.split(".")[1], required, "on", not chosen(field))
