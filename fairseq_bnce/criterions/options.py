"""The flags of the criteria, one dataclass each; flags.py reads and checks their values."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

_EXTRA_DRAWS_HELP = (
    "noise draws K: extra ones that join the batch's own targets (bnce; default 0), shared by the "
    "batch (shared_nce, sampled_bce, sampled_softmax; default 100) or fresh for every token (nce; "
    "default 100)"
)
_ALPHA_HELP = "alpha, the weight of (log Z_c - log Z)^2"
RANKING_ALPHA = 0.1
PENALTY_ALPHA = 1.0  # of the other criteria
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
            f"batch's estimate of log Z_c (default: {RANKING_ALPHA})"
        },
    )


@dataclass
class RegularizedConfig(GroupConfig, PenaltyConfig):
    nce_base: BaseLoss = field(default="bnce", metadata={"help": "the NCE loss to regularise"})
    # Goldberger & Melamud's tables say 10, with gamma 0.1. Their figures fit a penalty that is not
    # divided by gamma, as eq. 10 divides it, and half as strong as ours at that: eq. 10's 0.5. The
    # default is their equation's 1, at which NCE-R of up to 100 units has about the sigma_z of DEV.
    self_norm_alpha: float = field(
        default=PENALTY_ALPHA,
        metadata={
            "help": f"{_ALPHA_HELP} on a share gamma, divided by gamma; 0.5 comes near what "
            "Goldberger & Melamud (2018) report for alpha 10 and gamma 0.1"
        },
    )
    self_norm_rate: float = field(default=0.1, metadata={"help": _RATE_HELP})


@dataclass
class SelfNormSoftmaxConfig(SelfNormalizingConfig, PenaltyConfig):
    self_norm_alpha: float = field(default=PENALTY_ALPHA, metadata={"help": _ALPHA_HELP})
    self_norm_rate: float = field(
        default=1.0,
        metadata={"help": f"{_RATE_HELP}; below 1 the likelihood is the unnormalised one"},
    )
    score_squashing: bool = field(
        default=False,
        metadata={"help": "scores are 10 tanh(x / 5) of the model's own, also when it scores text"},
    )
