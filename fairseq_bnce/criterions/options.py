"""The flags that several criteria take; flags.py reads and checks their values."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II

RANKING_ALPHA = 0.1  # the default --self-norm-alpha of --objective ranking

# fairseq makes flags with choices of these types. mypy takes each for Any.
OutputBias: Any = ChoiceEnum(["none", "uniform", "unigram"])
Noise: Any = ChoiceEnum(["unigram", "uniform"])


@dataclass
class SelfNormalizingConfig(FairseqDataclass):
    """Flags of every criterion of this plugin."""

    log_z: str = field(
        default="auto",
        metadata={
            "help": "the constant log Z, in nats, that scores are normalised to: a number or "
            "'auto'. auto takes log Z of the checkpoint that training continues from, if there is "
            "one; else 0 where --init-output-bias sets an untrained model's scores; else the mean "
            "log Z_c of the first batch"
        },
    )
    init_output_bias: OutputBias = field(
        default="unigram",
        metadata={
            "help": "where an untrained model's output bias starts: none (the model's own start), "
            "uniform (-log V + log Z) or unigram (log q + log Z, the unigram model). A transformer "
            "has no output bias: one feature of its last layer normalisation becomes constant and "
            "serves as the bias, and the other gains start at a quarter"
        },
    )
    valid_partition_rate: float = field(
        default=1.0,
        metadata={
            "help": "share of the validation contexts whose exact log Z_c is computed. Between 0 "
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

    noise: Noise = field(
        default="unigram",
        metadata={"help": "noise distribution; bnce uses it only with --noise-samples"},
    )
    noise_power: float = field(
        default=1.0, metadata={"help": "exponent on the unigram counts of the noise distribution"}
    )
    noise_samples: Optional[int] = field(
        default=None,
        metadata={
            "help": "noise samples K: extra noise beside the batch's own targets (bnce; default "
            "0), shared by the batch (shared_nce, sampled_bce, sampled_softmax; default 100) or "
            "fresh for every token (nce; default 100)"
        },
    )
    noise_samples_by_epoch: Optional[str] = field(
        default=None,
        metadata={
            "help": "instead of --noise-samples: a number for each epoch, for example "
            "800,800,4000; the last number holds for all later epochs"
        },
    )
    row_sparse: bool = field(
        default=False,
        metadata={
            "help": "gradients and updates only for the rows of the embeddings and of the output "
            "layer that a batch touches, so that an update costs the same at any vocabulary size. "
            "Needs --optimizer sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam. Not for "
            "nce_regularized, whose penalty touches all rows"
        },
    )


@dataclass
class NoiseContrastiveConfig(NoiseConfig):
    """Flags of every criterion of the NCE family."""

    learn_log_z: bool = field(
        default=False,
        metadata={"help": "learn the constant log Z with the model, starting at --log-z"},
    )


@dataclass
class GroupConfig(NoiseContrastiveConfig):
    """Flags of the criteria whose noise are the batch's own targets."""

    bnce_group: str = field(
        default="batch",
        metadata={
            "help": "which targets share noise in bnce: the whole batch, one time step ('time'), "
            "or random groups of SIZE tokens"
        },
    )
    gather_noise: bool = field(
        default=False, metadata={"help": "use the other ranks' targets as noise too"}
    )


@dataclass
class PenaltyConfig(FairseqDataclass):
    """Flag of every criterion with an ``--self-norm-alpha``, whose default is the criterion's."""

    self_norm_alpha_by_epoch: Optional[str] = field(
        default=None,
        metadata={
            "help": "instead of --self-norm-alpha: a number for each epoch, for example "
            "0.3,0.3,0.15; the last number holds for all later epochs"
        },
    )
