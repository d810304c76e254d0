"""The registered criteria. Each names one loss; all else is shared.

A training step: features through ``model(...)`` (batch.py), padding dropped, noise drawn
(noise.py), the loss over the batch's own words (losses.py). A validation step: the target's score
and the exact partition function (metrics.py says what is logged).
"""

import logging
import math
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.distributed.utils import get_data_parallel_group, get_data_parallel_rank
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor, nn

from fairseq_bnce import losses, metrics, row_sparse
from fairseq_bnce.batch import BatchVocabulary, TokenBatch, target_scores
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.output_layer import OutputLayer, refuse_fully_sharded
from fairseq_bnce.token_counts import training_target_counts

logger = logging.getLogger(__name__)

_DEFAULT_SHARED_DRAWS = 100
_FAR_START = 2.0  # nats between log Z and where log Z_c starts
_EXTRA_DRAWS_HELP = (
    "noise draws K: extra ones that join the batch's own targets (bnce; default 0), shared by the "
    "batch (shared_nce; default 100) or fresh for every token (nce; default 100)"
)


@dataclass
class NoiseContrastiveConfig(FairseqDataclass):
    """What every criterion of this plugin takes."""

    log_z: float = field(
        default=0.0,
        metadata={"help": "the constant log Z, in nats, that scores are normalised to"},
    )
    noise: ChoiceEnum(["unigram", "uniform"]) = field(
        default="unigram", metadata={"help": "noise distribution that draws come from"}
    )
    noise_power: float = field(
        default=1.0, metadata={"help": "exponent on the unigram counts of the noise"}
    )
    noise_samples: Optional[int] = field(default=None, metadata={"help": _EXTRA_DRAWS_HELP})
    init_output_bias: ChoiceEnum(["none", "uniform", "unigram"]) = field(
        default="unigram",
        metadata={
            "help": "where the output bias starts, if there is one: as the model has it, at "
            "-log V + log Z, or at log q + log Z, which makes the untrained model the unigram model"
        },
    )
    valid_partition_rate: float = field(
        default=1.0,
        metadata={
            "help": "share of the validation contexts whose exact log Z_c is computed; between 0 "
            "and 1, loss and ppl are estimates; at 0, loss is the unnormalised NLL"
        },
    )
    row_sparse: bool = field(
        default=False,
        metadata={
            "help": "gradients and updates of the embeddings' and the output layer's rows that a "
            "batch touches, and no others, so that an update costs the same at any vocabulary "
            "size; with --optimizer sparse_sgd, sparse_adagrad, rowwise_adagrad or lazy_adam"
        },
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    ddp_backend: str = II("distributed_training.ddp_backend")


@dataclass
class BatchNCEConfig(NoiseContrastiveConfig):
    bnce_group: str = field(
        default="batch",
        metadata={
            "help": "whose targets serve each other as noise in bnce: all of the batch, those of "
            "one time step ('time'), or groups of SIZE tokens"
        },
    )
    gather_noise: bool = field(
        default=False,
        metadata={"help": "the other ranks' targets are noise too, besides those of the batch"},
    )


@dataclass
class RegularizedConfig(BatchNCEConfig):
    nce_base: ChoiceEnum(["bnce", "shared_nce", "nce"]) = field(
        default="bnce", metadata={"help": "the NCE loss to regularise"}
    )
    self_norm_alpha: float = field(
        default=10.0, metadata={"help": "alpha, the weight of (log Z_c - log Z)^2"}
    )
    self_norm_rate: float = field(
        default=0.1, metadata={"help": "gamma, the share of contexts that are regularised, (0, 1]"}
    )


class NoiseContrastiveCriterion(FairseqCriterion):
    """Shared by all criteria; a subclass says what :meth:`objective` is.

    Args:
        task: a language modeling or translation task.
        Others: the fields of :class:`NoiseContrastiveConfig`.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    def __init__(
        self,
        task: FairseqTask,
        log_z: float,
        noise: str,
        noise_power: float,
        noise_samples: Optional[int],
        init_output_bias: str,
        valid_partition_rate: float,
        row_sparse: bool,
        sentence_avg: bool,
        ddp_backend: str,
    ):
        super().__init__(task)
        if ddp_backend == "fully_sharded":
            refuse_fully_sharded()
        _require("--log-z", "a finite number", log_z, math.isfinite(log_z))
        power_fits = math.isfinite(noise_power) and noise_power >= 0
        _require("--noise-power", "a finite number of at least 0", noise_power, power_fits)
        _require("--noise-samples", "at least 0", noise_samples, (noise_samples or 0) >= 0)
        rate_fits = 0 <= valid_partition_rate <= 1
        _require("--valid-partition-rate", "from 0 to 1", valid_partition_rate, rate_fits)
        self.log_z = log_z
        self.noise_samples = noise_samples
        self.initial_bias = str(init_output_bias)
        self.valid_partition_rate = valid_partition_rate
        self.row_sparse = row_sparse
        self.is_legacy_ddp = ddp_backend in ("legacy_ddp", "no_c10d")
        self.sentence_avg = sentence_avg
        self.noise, self.noise_power = str(noise), noise_power
        self._is_prepared = self._is_checked = False
        # Made when first asked for; plain objects, which must not follow .half().
        self._distributions: Dict[str, NoiseDistribution] = {}

    @classmethod
    def build_criterion(cls, cfg: FairseqDataclass, task: FairseqTask) -> "FairseqCriterion":
        """Hand the configuration's fields to the constructor, which takes flat values."""
        names = [f.name for f in fields(getattr(cls, "__dataclass")) if f.name != "_name"]
        return cls(task, **{name: getattr(cfg, name) for name in names})

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Loss (nats, summed over tokens), sample size and logging outputs of a batch.

        In training mode the loss is the objective; in evaluation mode the exact NLL. With
        ``reduce=False`` it is (N,), one value for each token that is not padding.
        """
        batch = TokenBatch.from_sample(model, sample, self.padding_idx)
        logged: Dict[str, Any] = {}
        if model.training:
            self._check_once(batch.layer)
            loss = self.objective(batch, "sum" if reduce else "none")
        else:
            loss, logged = self.evaluate(batch, _first_id(sample))
            loss = loss.sum() if reduce else loss
        sentences = sample["target"].size(0)
        sample_size = sentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sample_size,
            **logged,
        }
        return loss, sample_size, logging_output

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        """The training loss, nats: summed, or of each token (N,) if ``reduction`` is "none"."""
        raise NotImplementedError

    def evaluate(self, batch: TokenBatch, seed: int) -> Tuple[Tensor, Dict[str, float]]:
        """Exact NLL of each token, (N,) nats, and the sums to log.

        With ``--valid-partition-rate`` below 1, log Z_c is that of the sampled contexts' mean.
        """
        log_odds = target_scores(batch.layer, batch.features, batch.target) - self.log_z
        generator = torch.Generator().manual_seed(seed)
        chosen = _random_share(batch, self.valid_partition_rate, generator)
        deviations = self._deviations(batch, chosen)
        everywhere = deviations if len(chosen) == len(batch) else _mean(deviations)
        return everywhere - log_odds, metrics.evaluation_sums(log_odds, deviations)

    def distribution(self, kind: str, device: torch.device) -> NoiseDistribution:
        """The "unigram" of the training targets, or the "noise" that draws come from."""
        if kind not in self._distributions:
            self._distributions[kind] = self._make_distribution(kind)
        return self._distributions[kind].to(device)

    def prepare(self, model: nn.Module, untrained: bool) -> None:
        """Make ready a model that this criterion is to train.

        To be called before a trainer is built: it wraps the model for DDP, which has to know of
        row-sparse parameters, and under --fp16 copies the parameters, the bias too.

        Args:
            model: the model, not wrapped.
            untrained: whether its output bias may be set.
        """
        layer = OutputLayer(model)
        if self.row_sparse:
            row_sparse.mark(model, *layer.parameters(), legacy_ddp=self.is_legacy_ddp)
        if untrained:
            self._init_output_bias(layer.bias)
        self._is_prepared = True

    def _init_output_bias(self, bias: Optional[Tensor]) -> None:
        """As ``--init-output-bias`` says, if there is a bias."""
        if bias is not None and self.initial_bias != "none":
            uniform = self.initial_bias == "uniform"
            q = NoiseDistribution.uniform(len(bias)) if uniform else self._unigram()
            with torch.no_grad():
                bias.copy_(q.log_q + self.log_z)

    def _unigram(self) -> NoiseDistribution:
        return self.distribution("unigram", torch.device("cpu"))

    def _check_once(self, layer: OutputLayer) -> None:
        """Warn of a start so far from log Z that training spends itself on getting there."""
        if self._is_checked:
            return
        self._is_checked = True
        prepared = self._is_prepared or not self.row_sparse
        _require("--row-sparse", "--task language_modeling", type(self.task).__name__, prepared)
        log_v = math.log(len(layer))
        if layer.bias is None and abs(self.log_z - log_v) > _FAR_START:
            logger.warning(
                f"{type(layer.decoder).__name__} has no output bias: its scores start near 0, so "
                f"log Z_c starts near log V = {log_v:.1f}, far from --log-z {self.log_z:g}, and it "
                f"may take most of the training to get there; --log-z {log_v:.1f} starts right"
            )
        elif layer.bias is not None and not self._is_prepared and self.initial_bias != "none":
            logger.warning(
                f"--init-output-bias {self.initial_bias} is applied by the language_modeling task "
                f"alone; under {type(self.task).__name__} the bias starts as the model has it"
            )

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log what the ranks have summed up (metrics.py)."""
        metrics.reduce(logging_outputs)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True

    def _deviations(self, batch: TokenBatch, tokens: Tensor) -> Tensor:
        """log Z_c - log Z of some contexts."""
        if not len(tokens):
            return batch.features.new_zeros(0, dtype=torch.float32)
        features = batch.features.index_select(0, tokens)
        return losses.log_partition(features, *batch.layer.full()) - self.log_z

    def _make_distribution(self, kind: str) -> NoiseDistribution:
        if kind == "noise" and self.noise == "uniform":
            return NoiseDistribution.uniform(len(self.task.target_dictionary))
        if kind == "noise" and self.noise_power == 1:
            return self._unigram()
        power = self.noise_power if kind == "noise" else 1.0
        return NoiseDistribution(training_target_counts(self.task), power)

    def draw(self, batch: TokenBatch, *shape: int) -> Tensor:
        """Ids from the noise distribution, int64 of this shape, on the batch's device."""
        device = batch.target.device
        return self.distribution("noise", device).sample(shape, generator=_generator(device))


def batch_nce(criterion: NoiseContrastiveCriterion, batch: TokenBatch, reduction: str) -> Tensor:
    """B-NCE over groups of targets, with ``noise_samples`` extra draws for each group."""
    extra = criterion.noise_samples or 0
    groups = _groups(batch, criterion.bnce_group)
    foreign = _targets_elsewhere(batch) if criterion.gather_noise else batch.target[:0]
    # A lone target has no company to serve as its noise: one draw makes up for it.
    draws = [criterion.draw(batch, max(extra, 2 - len(group) - len(foreign))) for group in groups]
    vocabulary = BatchVocabulary(batch.layer, batch.target, foreign, *draws)
    target, foreign, *draws = vocabulary.ids
    parts = [
        losses.batch_nce_loss(
            features,
            words,
            vocabulary.weight,
            vocabulary.bias,
            _mixture_log_q(criterion, vocabulary.words, len(words) - 1 + len(foreign), len(noise)),
            noise_ids=torch.cat([foreign, noise]),
            log_z=criterion.log_z,
            reduction=reduction,
        )
        for features, words, noise in zip(
            _split(batch.features, groups), _split(target, groups), draws
        )
    ]
    if len(parts) == 1:
        return parts[0]
    if reduction == "sum":
        return torch.stack(parts).sum()
    return torch.cat(parts)[torch.cat(groups).argsort()]


def _split(tokens: Tensor, groups: List[Tensor]) -> List[Tensor]:
    """The parts of ``tokens`` in each group; all of them, uncopied, where there is one."""
    return [tokens] if len(groups) == 1 else [tokens.index_select(0, group) for group in groups]


def _targets_elsewhere(batch: TokenBatch) -> Tensor:
    """The other ranks' targets; every rank has to ask for them in the same batch."""
    if not _is_distributed():
        return batch.target[:0]
    group = get_data_parallel_group()
    counts = row_sparse.lengths(batch.target, group)
    everywhere = row_sparse.gather_uneven(batch.target, counts, group)
    rank = get_data_parallel_rank()
    return torch.cat([part for i, part in enumerate(everywhere.split(counts)) if i != rank])


def shared_nce(criterion: NoiseContrastiveCriterion, batch: TokenBatch, reduction: str) -> Tensor:
    """NCE with draws shared by the batch."""
    return _drawn_nce(losses.shared_nce_loss, criterion, batch, (), reduction)


def fresh_nce(criterion: NoiseContrastiveCriterion, batch: TokenBatch, reduction: str) -> Tensor:
    """NCE with draws of its own for every token."""
    return _drawn_nce(losses.nce_loss, criterion, batch, (len(batch),), reduction)


def _drawn_nce(
    loss, criterion, batch: TokenBatch, shape: Tuple[int, ...], reduction: str
) -> Tensor:
    count = criterion.noise_samples
    count = _DEFAULT_SHARED_DRAWS if count is None else count
    noise = criterion.draw(batch, *shape, count)
    vocabulary = BatchVocabulary(batch.layer, batch.target, noise)
    return loss(
        batch.features,
        vocabulary.ids[0],
        vocabulary.weight,
        vocabulary.bias,
        criterion.distribution("noise", noise.device).log_q[vocabulary.words],
        vocabulary.ids[1],
        log_z=criterion.log_z,
        reduction=reduction,
    )


NCE_LOSSES = {"bnce": batch_nce, "shared_nce": shared_nce, "nce": fresh_nce}


@register_criterion("bnce", dataclass=BatchNCEConfig)
class BatchNCECriterion(NoiseContrastiveCriterion):
    """Batch noise-contrastive estimation (Oualil & Klakow 2017)."""

    def __init__(self, task: FairseqTask, bnce_group: str, gather_noise: bool, **others: Any):
        super().__init__(task, **others)
        self.bnce_group = _checked_group(bnce_group)
        whole = bnce_group == "batch" or not gather_noise
        _require("--bnce-group", "'batch' with --gather-noise", repr(bnce_group), whole)
        self.gather_noise = gather_noise

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return batch_nce(self, batch, reduction)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(NoiseContrastiveCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    def __init__(self, task: FairseqTask, **others: Any):
        super().__init__(task, **others)
        _require_draws(self.noise_samples)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return shared_nce(self, batch, reduction)


@register_criterion("nce_regularized", dataclass=RegularizedConfig)
class RegularizedNCECriterion(BatchNCECriterion):
    """Any NCE loss with an explicit self-normalisation term (Goldberger & Melamud 2018, eq. 10)."""

    def __init__(
        self,
        task: FairseqTask,
        nce_base: str,
        self_norm_alpha: float,
        self_norm_rate: float,
        **others: Any,
    ):
        super().__init__(task, **others)
        _require(
            "--row-sparse", "off: the penalty's gradient has every row", "on", not self.row_sparse
        )
        alpha_fits = math.isfinite(self_norm_alpha) and self_norm_alpha >= 0
        _require("--self-norm-alpha", "a finite number of at least 0", self_norm_alpha, alpha_fits)
        rate_fits = 0 < self_norm_rate <= 1
        _require("--self-norm-rate", "above 0 and at most 1", self_norm_rate, rate_fits)
        self.nce_base = str(nce_base)
        if self.nce_base != "bnce":
            _require_draws(self.noise_samples)
        self.self_norm_alpha = self_norm_alpha
        self.self_norm_rate = self_norm_rate

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        loss = NCE_LOSSES[self.nce_base](self, batch, reduction)
        chosen = _random_share(batch, self.self_norm_rate, _generator(torch.device("cpu")))
        if not len(chosen):
            return loss
        penalty = losses.partition_penalty(
            batch.features.index_select(0, chosen),
            *batch.layer.full(),
            # alpha / gamma, for the share that a whole number of contexts makes.
            alpha=self.self_norm_alpha * len(batch) / len(chosen),
            log_z=self.log_z,
            reduction=reduction,
        )
        return loss + penalty if reduction == "sum" else loss.index_add(0, chosen, penalty)


def _groups(batch: TokenBatch, kind: str) -> List[Tensor]:
    """Indices of the tokens that serve each other as noise, at least one (maybe empty) group."""
    everyone = torch.arange(len(batch), device=batch.target.device)
    if kind == "time" and len(batch):
        order = batch.time_steps.argsort(stable=True)
        sizes = torch.unique(batch.time_steps, return_counts=True)[1]
        return list(order.split(sizes.tolist()))
    return list(everyone.split(int(kind))) if kind.isdigit() else [everyone]


def _mixture_log_q(
    criterion: NoiseContrastiveCriterion, words: Tensor, in_batch: int, drawn: int
) -> Tensor:
    """log q of noise of which ``in_batch`` are targets of the data and ``drawn`` are draws.

    The targets follow the unigram distribution p whatever ``--noise`` says, so with draws from r
    the noise is the mixture q = (in_batch p + drawn r) / K.
    """
    unigram = criterion.distribution("unigram", words.device)
    noise = criterion.distribution("noise", words.device)
    p, r = unigram.log_q[words], noise.log_q[words]
    if noise is unigram or drawn == 0:
        return p
    share = drawn / (max(in_batch, 0) + drawn)
    return torch.logaddexp(p + math.log(1 - share), r + math.log(share)) if share < 1 else r


def _generator(device: torch.device) -> torch.Generator:
    """Seeded from torch's own state and the rank.

    fairseq seeds torch from the update number, so that a resumed run repeats exactly, but alike
    on all ranks, which would then draw the same noise.
    """
    rank = torch.distributed.get_rank() if _is_distributed() else 0
    seed = int(torch.randint(2**62, ()))
    return torch.Generator(device=device).manual_seed(seed + rank)


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _random_share(batch: TokenBatch, rate: float, generator: torch.Generator) -> Tensor:
    """Sorted indices of a random share of the tokens, at least one unless there is none."""
    count = min(len(batch), max(1, round(rate * len(batch)))) if rate else 0
    if count == len(batch):
        return torch.arange(count, device=batch.target.device)
    chosen = torch.randperm(len(batch), generator=generator)[:count]
    return chosen.sort().values.to(batch.target.device)


def _mean(values: Tensor) -> Tensor:
    return values.mean() if values.numel() else values.new_zeros(())


def _first_id(sample: Dict[str, Any]) -> int:
    """Makes a batch's sampled contexts the same in every validation of the same data."""
    ids = sample.get("id")
    return int(ids[0]) if ids is not None and len(ids) else 0


def _checked_group(group: str) -> str:
    fits = group in ("batch", "time") or (group.isdigit() and int(group) >= 2)
    _require("--bnce-group", "'batch', 'time' or a size of at least 2", repr(group), fits)
    return group


def _require_draws(noise_samples: Optional[int]) -> None:
    fits = noise_samples is None or noise_samples >= 1
    _require("--noise-samples", "at least 1 for this loss", noise_samples, fits)


def _require(flag: str, required: str, got: object, fits: bool) -> None:
    if not fits:
        raise ValueError(f"{flag}: required {required}, got {got}")
