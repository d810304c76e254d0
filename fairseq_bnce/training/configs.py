"""The flags of the criteria, one dataclass each, and the values that they may have."""

import math
import re
from argparse import Namespace
from dataclasses import dataclass, field, fields
from typing import Any, List, Optional, Sequence

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

from fairseq_bnce.errors import require
from fairseq_bnce.text.numerals import decimal

_EXTRA_DRAWS_HELP = (
    "noise draws K: extra ones that join the batch's own targets (bnce; default 0), shared by the "
    "batch (shared_nce, sampled_bce, sampled_softmax; default 100) or fresh for every token (nce; "
    "default 100)"
)
_MOST = 1_000_000  # of noise draws, or tokens in a group: more is a slip of the keyboard
_NUMBER = "[0-9]{1,7}"  # str.isdigit() holds for "²", too
_ALPHA_HELP = "alpha, the weight of (log Z_c - log Z)^2"
_RANKING_ALPHA = 0.1
_PENALTY_ALPHA = 1.0  # of the other criteria
_RATE_HELP = "gamma, the share of contexts that are regularised, (0, 1]"

# Types of fields, of which fairseq makes flags with choices, and which mypy takes for anything.
OutputBias: Any = ChoiceEnum(["none", "uniform", "unigram"])
Noise: Any = ChoiceEnum(["unigram", "uniform"])
BatchObjective: Any = ChoiceEnum(["binary", "ranking"])
Estimator: Any = ChoiceEnum(["complementary", "is", "cps"])
BaseLoss: Any = ChoiceEnum(["bnce", "shared_nce", "nce"])


@dataclass
class SelfNormalizingConfig(FairseqDataclass):
    """What every criterion of this plugin takes."""

    log_z: str = field(
        default="auto",
        metadata={
            "help": "the constant log Z, in nats, that scores are normalised to: a number, or "
            "'auto': that of the checkpoint that the training goes on from, if it has one; 0 where "
            "--init-output-bias sets an untrained model's scores; else as measured on the first "
            "batch"
        },
    )
    init_output_bias: OutputBias = field(
        default="unigram",
        metadata={
            "help": "where an untrained model's output bias starts: none (as the model has it), "
            "uniform (-log V + log Z) or unigram (log q + log Z, the unigram model); a transformer "
            "has no bias: one feature of its last layer normalisation is made constant and "
            "serves as one, and its other gains start at a quarter"
        },
    )
    valid_partition_rate: float = field(
        default=1.0,
        metadata={
            "help": "share of the validation contexts whose exact log Z_c is computed; between 0 "
            "and 1, loss and ppl are estimates; at 0, loss is the unnormalised NLL"
        },
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
    reset_optimizer: bool = II("checkpoint.reset_optimizer")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


@dataclass
class NoiseConfig(SelfNormalizingConfig):
    """What every criterion with noise takes."""

    noise: Noise = field(
        default="unigram",
        metadata={"help": "distribution of the draws, which bnce has with --noise-samples alone"},
    )
    noise_power: float = field(
        default=1.0, metadata={"help": "exponent on the unigram counts, for the draws"}
    )
    noise_samples: Optional[int] = field(default=None, metadata={"help": _EXTRA_DRAWS_HELP})
    noise_samples_by_epoch: Optional[str] = field(
        default=None,
        metadata={
            "help": "in the place of --noise-samples: a number for each epoch, as in 800,800,4000, "
            "of which the last one holds for all later epochs"
        },
    )
    row_sparse: bool = field(
        default=False,
        metadata={
            "help": "gradients and updates of the embeddings' and the output layer's rows that a "
            "batch touches, and no others, so that an update costs the same at any vocabulary "
            "size; with --optimizer sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam; not "
            "under nce_regularized, whose penalty touches all rows"
        },
    )


@dataclass
class NoiseContrastiveConfig(NoiseConfig):
    """What every criterion of the NCE family takes."""

    learn_log_z: bool = field(
        default=False,
        metadata={"help": "learn the constant log Z, which starts at --log-z, with the model"},
    )


@dataclass
class SampledBCEConfig(NoiseContrastiveConfig):
    estimator: Estimator = field(
        default="complementary",
        metadata={
            "help": "how the draws stand for the sum over all words: each by 1 / (K q), importance "
            "sampling; all by V / K, compensated partial summation; or as the first, but with the "
            "target's own term computed, and without the draws that are the target"
        },
    )


@dataclass
class GroupConfig(NoiseContrastiveConfig):
    bnce_group: str = field(
        default="batch",
        metadata={
            "help": "whose targets serve each other as noise in bnce: all of the batch, those of "
            "one time step ('time'), or groups of SIZE tokens drawn at random"
        },
    )
    gather_noise: bool = field(
        default=False,
        metadata={"help": "the other ranks' targets are noise too, besides those of the batch"},
    )


@dataclass
class PenaltyConfig(FairseqDataclass):
    """What every criterion with an ``--self-norm-alpha`` takes; its default is their own."""

    self_norm_alpha_by_epoch: Optional[str] = field(
        default=None,
        metadata={
            "help": "in the place of --self-norm-alpha: a number for each epoch, as in "
            "0.3,0.3,0.15, of which the last one holds for all later epochs"
        },
    )


@dataclass
class BatchNCEConfig(GroupConfig, PenaltyConfig):
    objective: BatchObjective = field(
        default="binary",
        metadata={
            "help": "tell the target from each noise word (Oualil & Klakow 2017), or rank it "
            "among the batch's words, which estimate log Z_c (Ma & Collins 2018)"
        },
    )
    self_norm_alpha: Optional[float] = field(
        default=None,
        metadata={
            "help": "with --objective ranking: alpha, the weight of (log Z_c - log Z)^2 on the "
            f"batch's estimate of log Z_c (default: {_RANKING_ALPHA})"
        },
    )


@dataclass
class RegularizedConfig(GroupConfig, PenaltyConfig):
    nce_base: BaseLoss = field(default="bnce", metadata={"help": "the NCE loss to regularise"})
    # Goldberger & Melamud's tables say 10, with gamma 0.1. Their figures fit a penalty that is not
    # divided by gamma, as eq. 10 divides it, and half as strong as ours at that: eq. 10's 0.5. The
    # default is their equation's 1, at which NCE-R of up to 100 units has about the sigma_z of DEV.
    self_norm_alpha: float = field(
        default=_PENALTY_ALPHA,
        metadata={
            "help": f"{_ALPHA_HELP} on a share gamma, divided by gamma; 0.5 comes near what "
            "Goldberger & Melamud (2018) report for alpha 10 and gamma 0.1"
        },
    )
    self_norm_rate: float = field(default=0.1, metadata={"help": _RATE_HELP})


@dataclass
class SelfNormSoftmaxConfig(SelfNormalizingConfig, PenaltyConfig):
    self_norm_alpha: float = field(default=_PENALTY_ALPHA, metadata={"help": _ALPHA_HELP})
    self_norm_rate: float = field(
        default=1.0,
        metadata={"help": f"{_RATE_HELP}; below 1 the likelihood is the unnormalised one"},
    )
    score_squashing: bool = field(
        default=False,
        metadata={"help": "scores are 10 tanh(x / 5) of the model's own, also when it scores text"},
    )


# What a criterion has that has no such flag.
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


def options(config: Any, kind: type) -> Namespace:
    """The values of a criterion's flags, checked; ``_OFF`` where it has no such flag.

    Args:
        config: of one criterion, in any container of fairseq's.
        kind: its dataclass.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """
    names = [f.name for f in fields(kind) if f.name != "_name"]
    values = Namespace(**{**_OFF, **{name: getattr(config, name) for name in names}})
    for name, (required, fits) in _REQUIRED.items():
        value = getattr(values, name, None)
        if name in names and value is not None:
            _require(name, required, value, fits(value))
    _check_together(values)
    if values.self_norm_alpha is None:
        values.self_norm_alpha = _RANKING_ALPHA if values.objective == "ranking" else 0.0
    return values


def check_training(values: Namespace) -> None:
    """What :func:`options` gave, for a training, and not for fairseq-validate.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """
    _check_metric(values.best_checkpoint_metric, values.valid_partition_rate, values.sentence_avg)
    _check_penalty(values)
    _check_halves(values)
    if values.row_sparse:
        _refuse_flattening(values)


def draws_by_epoch(count: Optional[int], by_epoch: Optional[str]) -> List[Optional[int]]:
    """What the two flags of noise samples say; None is for the loss to decide.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """
    if by_epoch is None:
        fits = 0 <= (count or 0) <= _MOST
        _require("noise_samples", f"at least 0 and at most {_MOST:,}", count, fits)
        return [count]
    _require("noise_samples", "none beside --noise-samples-by-epoch", count, count is None)
    fits = re.fullmatch(f"{_NUMBER}(,{_NUMBER})*", by_epoch) is not None
    numbers = [int(number) for number in by_epoch.split(",")] if fits else []
    required = f"numbers of at least 0 with commas between them, at most {_MOST:,}"
    _require("noise_samples_by_epoch", required, by_epoch, fits and max(numbers) <= _MOST)
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
    _require("self_norm_alpha_by_epoch", required, by_epoch, len(alphas) == len(numbers))
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


def _check_together(values: Namespace) -> None:
    """Flags that others make meaningless."""
    is_batch, gathers = values.bnce_group == "batch", values.gather_noise
    fits = is_batch or not gathers
    _require("bnce_group", "'batch' with --gather-noise", values.bnce_group, fits)
    base = str(values.nce_base)
    fits = base in ("None", "bnce") or (is_batch and not gathers)
    _require("nce_base", "bnce with --bnce-group or --gather-noise", base, fits)
    objective = str(values.objective)
    has_penalty = objective != "binary"
    fits = has_penalty or values.self_norm_alpha_by_epoch is None
    required = "--objective ranking, which has the penalty"
    _require("self_norm_alpha_by_epoch", required, objective, fits)
    # Checkpoints of before have the default of ranking whatever their objective.
    alpha = values.self_norm_alpha
    fits = has_penalty or alpha in (None, _RANKING_ALPHA)
    _require("self_norm_alpha", f"{required} (or --criterion nce_regularized)", alpha, fits)


def _check_penalty(values: Namespace) -> None:
    """Its weight: in one flag, and above 0 where nothing else bounds the objective."""
    alpha, by_epoch = values.self_norm_alpha, values.self_norm_alpha_by_epoch
    default = _PENALTY_ALPHA if values.objective is None else _RANKING_ALPHA
    required = "none beside --self-norm-alpha-by-epoch"
    _require("self_norm_alpha", required, alpha, by_epoch is None or alpha == default)
    # The unnormalised likelihood grows with the scores of targets, without end.
    is_bounded = values.nce_base is not None or values.self_norm_rate == 1
    name = "self_norm_alpha" if by_epoch is None else "self_norm_alpha_by_epoch"
    least = min(alphas_by_epoch(alpha, by_epoch))
    _require(name, "above 0 with --self-norm-rate below 1", least, is_bounded or least > 0)


def _check_metric(name: str, rate: float, sentence_avg: bool) -> None:
    """At the first validation, before anything is saved, fairseq would find that there is none."""
    needs_contexts = name in ("ppl", "mu_z", "sigma_z", "ppl_se")
    is_missing = (rate == 0 and needs_contexts) or (rate == 1 and name == "ppl_se")
    is_missing |= name == "nll_loss" and not sentence_avg  # loss is the same then
    required = f"what is logged under --valid-partition-rate {rate:g} (loss, u_ppl)"
    _require("best_checkpoint_metric", required, name, not is_missing)


def _check_halves(values: Namespace) -> None:
    """Without the flag of a precision fairseq trains in float32, whatever it is to save."""
    for half in ("fp16", "bf16"):
        required = f"--{half} beside it (common.{half}=true, which fairseq-hydra-train leaves out)"
        fits = getattr(values, half) or not getattr(values, f"memory_efficient_{half}")
        require(f"--memory-efficient-{half}", required, "none", fits)


def _refuse_flattening(values: Namespace) -> None:
    """What makes fairseq's optimiser copy all, before that is built.

    It can't be built for --fp16 without a GPU, which would be the error then.
    """
    required = "float32, --memory-efficient-fp16, --memory-efficient-bf16 or --amp"
    in_place = values.memory_efficient_fp16 or values.memory_efficient_bf16
    for flag, is_on in (("--fp16", values.fp16), ("--bf16", values.bf16)):
        got = f"{flag} alone, which copies every parameter and gradient whole at each update"
        require("--row-sparse", required, got, in_place or not is_on)


def _require(name: str, required: str, got: object, fits: bool) -> None:
    """The same of a field, whose flag is named."""
    got = repr(got) if isinstance(got, str) else got
    require(f"--{name.replace('_', '-')}", required, got, fits)
