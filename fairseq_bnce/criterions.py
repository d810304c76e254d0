"""The registered criteria. Each names one objective; all else is shared.

A training step: features through ``model(...)`` (batch.py), padding dropped, noise drawn
(noise.py), the loss over the batch's own words (objectives.py, losses.py). A validation step: the
target's score and the exact partition function (metrics.py says what is logged).
"""

import logging
import math
from dataclasses import fields
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_bnce import losses, metrics, objectives, ranks, row_sparse
from fairseq_bnce.batch import TokenBatch, target_scores
from fairseq_bnce.configs import (
    BatchNCEConfig,
    NoiseConfig,
    NoiseContrastiveConfig,
    RegularizedConfig,
    SelfNormSoftmaxConfig,
    checked_alpha,
    checked_group,
    checked_rate,
    draws_by_epoch,
    refuse_flattening,
    require,
)
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.output_layer import OutputLayer, refuse_fully_sharded
from fairseq_bnce.token_counts import training_target_counts

logger = logging.getLogger(__name__)

_FAR_START = 2.0  # nats between log Z and where log Z_c starts


class SelfNormalizingCriterion(FairseqCriterion):
    """Shared by all criteria; a subclass says what :meth:`objective` is.

    Args:
        task: a language modeling or translation task.
        Others: the fields of :class:`configs.SelfNormalizingConfig`.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    # What some criteria have as flags.
    row_sparse = False
    score_squashing = False

    def __init__(
        self,
        task: FairseqTask,
        log_z: float,
        init_output_bias: str,
        valid_partition_rate: float,
        sentence_avg: bool,
        ddp_backend: str,
    ):
        super().__init__(task)
        if ddp_backend == "fully_sharded":
            refuse_fully_sharded()
        require("--log-z", "a finite number", log_z, math.isfinite(log_z))
        rate_fits = 0 <= valid_partition_rate <= 1
        require("--valid-partition-rate", "from 0 to 1", valid_partition_rate, rate_fits)
        self.initial_log_z = log_z
        self.initial_bias = str(init_output_bias)
        self.valid_partition_rate = valid_partition_rate
        self.is_legacy_ddp = ddp_backend in ("legacy_ddp", "no_c10d")
        self.sentence_avg = sentence_avg
        self._is_prepared = self._is_checked = False
        # Made when first asked for; plain objects, which must not follow .half().
        self._distributions: Dict[str, NoiseDistribution] = {}

    @classmethod
    def build_criterion(cls, cfg: FairseqDataclass, task: FairseqTask) -> "FairseqCriterion":
        """Hand the configuration's fields to the constructor, which takes flat values."""
        names = [f.name for f in fields(getattr(cls, "__dataclass")) if f.name != "_name"]
        return cls(task, **{name: getattr(cfg, name) for name in names})

    @property
    def log_z(self) -> float:
        """The constant log Z, nats."""
        return self.initial_log_z

    def begin_epoch(self, epoch: int) -> None:
        """Do as flags say of this epoch, counted from 1; the language_modeling task calls it."""

    def scoring_state(self) -> Dict[str, Any]:
        """What a checkpoint has to know in order to score."""
        squashing = {"score_squashing": True} if self.score_squashing else {}
        return {"log_z": float(self.log_z), **squashing}

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
        log_odds = self.target_scores(batch) - self.log_z
        generator = torch.Generator().manual_seed(seed)
        chosen = _random_share(batch, self.valid_partition_rate, generator)
        deviations = self._deviations(batch, chosen)
        everywhere = deviations if len(chosen) == len(batch) else _mean(deviations)
        return everywhere - log_odds, metrics.evaluation_sums(log_odds, deviations)

    def target_scores(self, batch: TokenBatch) -> Tensor:
        """m(w_i, i), (N,) nats."""
        return target_scores(batch.layer, batch.features, batch.target, self.score_squashing)

    def log_partition(self, batch: TokenBatch, tokens: Tensor) -> Tensor:
        """log Z_c of the contexts with these indices, nats."""
        features = batch.features.index_select(0, tokens)
        return losses.log_partition(features, *batch.layer.full(), squash=self.score_squashing)

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
            scores = q.log_q + self.log_z
            with torch.no_grad():
                bias.copy_(losses.unsquashed(scores) if self.score_squashing else scores)

    def _unigram(self) -> NoiseDistribution:
        return self.distribution("unigram", torch.device("cpu"))

    def _check_once(self, layer: OutputLayer) -> None:
        """Warn of a start so far from log Z that training spends itself on getting there."""
        if self._is_checked:
            return
        self._is_checked = True
        for flag in self._task_flags():
            task = type(self.task).__name__
            require(flag, "--task language_modeling", task, self._is_prepared)
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

    def _task_flags(self) -> List[str]:
        """The flags in use that the language_modeling task alone carries out."""
        return []

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
        return self.log_partition(batch, tokens) - self.log_z

    def _make_distribution(self, kind: str) -> NoiseDistribution:
        return NoiseDistribution(training_target_counts(self.task))


class NoiseCriterion(SelfNormalizingCriterion):
    """Shared by the criteria that draw noise.

    Args:
        task: see above.
        Others: the fields of :class:`configs.NoiseConfig`.
    """

    def __init__(
        self,
        task: FairseqTask,
        noise: str,
        noise_power: float,
        noise_samples: Optional[int],
        noise_samples_by_epoch: Optional[str],
        row_sparse: bool,
        fp16: bool,
        bf16: bool,
        memory_efficient_fp16: bool,
        memory_efficient_bf16: bool,
        **others: Any,
    ):
        super().__init__(task, **others)
        if row_sparse and not (memory_efficient_fp16 or memory_efficient_bf16):
            refuse_flattening({"--fp16": fp16, "--bf16": bf16})
        power_fits = math.isfinite(noise_power) and noise_power >= 0
        require("--noise-power", "a finite number of at least 0", noise_power, power_fits)
        self.noise, self.noise_power = str(noise), noise_power
        self.draws_by_epoch = draws_by_epoch(noise_samples, noise_samples_by_epoch)
        suffix = "" if noise_samples_by_epoch is None else "-by-epoch"
        self._draws_flag = f"--noise-samples{suffix}"
        self.noise_samples = self.draws_by_epoch[0]
        self.row_sparse = row_sparse
        self.learned_log_z: Optional[nn.Parameter] = None

    def begin_epoch(self, epoch: int) -> None:
        self.noise_samples = self.draws_by_epoch[min(epoch, len(self.draws_by_epoch)) - 1]

    def draw(self, batch: TokenBatch, *shape: int) -> Tensor:
        """Ids from the noise distribution, int64 of this shape, on the batch's device."""
        device = batch.target.device
        return self.distribution("noise", device).sample(shape, generator=_generator(device))

    def _task_flags(self) -> List[str]:
        by_epoch = len(self.draws_by_epoch) > 1
        given = {"--row-sparse": self.row_sparse, "--noise-samples-by-epoch": by_epoch}
        return [flag for flag, is_given in given.items() if is_given]

    def _require_draws(self) -> None:
        for count in self.draws_by_epoch:
            fits = count is None or count >= 1
            require(self._draws_flag, "at least 1 for this loss", count, fits)

    def _make_distribution(self, kind: str) -> NoiseDistribution:
        if kind == "noise" and self.noise == "uniform":
            return NoiseDistribution.uniform(len(self.task.target_dictionary))
        if kind == "noise" and self.noise_power == 1:
            return self._unigram()
        power = self.noise_power if kind == "noise" else 1.0
        return NoiseDistribution(training_target_counts(self.task), power)


class NoiseContrastiveCriterion(NoiseCriterion):
    """Shared by the NCE family, whose log Z may be learned.

    Args:
        task: see above.
        Others: the fields of :class:`configs.NoiseContrastiveConfig`.
    """

    def __init__(self, task: FairseqTask, learn_log_z: bool, **others: Any):
        super().__init__(task, **others)
        if learn_log_z:
            self.learned_log_z = nn.Parameter(torch.tensor(float(self.initial_log_z)))

    @property
    def log_z(self) -> float:
        return self.initial_log_z if self.learned_log_z is None else self.learned_log_z.item()


class GroupCriterion(NoiseContrastiveCriterion):
    """Shared by the criteria whose batches may be their own noise."""

    kind = "binary"

    def __init__(self, task: FairseqTask, bnce_group: str, gather_noise: bool, **others: Any):
        super().__init__(task, **others)
        self.bnce_group = checked_group(bnce_group)
        whole = bnce_group == "batch" or not gather_noise
        require("--bnce-group", "'batch' with --gather-noise", repr(bnce_group), whole)
        self.gather_noise = gather_noise


@register_criterion("bnce", dataclass=BatchNCEConfig)
class BatchNCECriterion(GroupCriterion):
    """Batch noise-contrastive estimation, binary (Oualil & Klakow 2017) or ranking."""

    def __init__(self, task: FairseqTask, objective: str, self_norm_alpha: float, **others: Any):
        super().__init__(task, **others)
        self.kind = str(objective)
        self.self_norm_alpha = checked_alpha(self_norm_alpha)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return objectives.batch_nce(self, batch, reduction)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(NoiseContrastiveCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    def __init__(self, task: FairseqTask, **others: Any):
        super().__init__(task, **others)
        self._require_draws()

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return objectives.shared_nce(self, batch, reduction)


@register_criterion("nce", dataclass=NoiseContrastiveConfig)
class FreshNCECriterion(SharedNCECriterion):
    """NCE with fresh noise for every token (Mnih & Teh 2012): the slow baseline."""

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return objectives.fresh_nce(self, batch, reduction)


@register_criterion("sampled_softmax", dataclass=NoiseConfig)
class SampledSoftmaxCriterion(NoiseCriterion):
    """Sampled softmax (Bengio & Senecal 2003; Jozefowicz et al. 2016): not self-normalised."""

    def __init__(self, task: FairseqTask, **others: Any):
        super().__init__(task, **others)
        self._require_draws()

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        return objectives.sampled_softmax(self, batch, reduction)


@register_criterion("nce_regularized", dataclass=RegularizedConfig)
class RegularizedNCECriterion(GroupCriterion):
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
        dense = not self.row_sparse
        require("--row-sparse", "off: the penalty's gradient has every row", "on", dense)
        self.nce_base = str(nce_base)
        if self.nce_base != "bnce":
            self._require_draws()
        self.self_norm_alpha = checked_alpha(self_norm_alpha)
        self.self_norm_rate = checked_rate(self_norm_rate)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        loss = objectives.NCE_LOSSES[self.nce_base](self, batch, reduction)
        return _with_penalty(self, loss, batch, reduction)


@register_criterion("self_norm_softmax", dataclass=SelfNormSoftmaxConfig)
class SelfNormSoftmaxCriterion(SelfNormalizingCriterion):
    """The softmax likelihood with an explicit self-normalisation term.

    gamma = 1: log Z_c - m(w) + alpha (log Z_c - log Z)^2 (Devlin et al. 2014; eq. 8 of Goldberger
    & Melamud 2018). gamma < 1: -(m(w) - log Z) + (alpha / gamma) (log Z_c - log Z)^2 on a share
    gamma of the contexts (Andreas & Klein 2015; eq. 9 of Goldberger & Melamud).
    """

    def __init__(
        self,
        task: FairseqTask,
        self_norm_alpha: float,
        self_norm_rate: float,
        score_squashing: bool,
        **others: Any,
    ):
        super().__init__(task, **others)
        self.self_norm_alpha = checked_alpha(self_norm_alpha)
        self.self_norm_rate = checked_rate(self_norm_rate)
        self.score_squashing = score_squashing

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        if self.self_norm_rate < 1:
            unlikelihood = self.log_z - self.target_scores(batch)
            unlikelihood = unlikelihood.sum() if reduction == "sum" else unlikelihood
            return _with_penalty(self, unlikelihood, batch, reduction)
        everyone = torch.arange(len(batch), device=batch.target.device)
        log_partition = self.log_partition(batch, everyone)
        penalty = self.self_norm_alpha * (log_partition - self.log_z).square()
        loss = log_partition - self.target_scores(batch) + penalty
        return loss.sum() if reduction == "sum" else loss


def _with_penalty(criterion: Any, loss: Tensor, batch: TokenBatch, reduction: str) -> Tensor:
    """Plus (alpha / gamma) (log Z_c - log Z)^2 on a random share gamma of the contexts."""
    generator = _generator(torch.device("cpu"))
    chosen = _random_share(batch, criterion.self_norm_rate, generator)
    if not len(chosen):
        return loss
    # alpha / gamma, for the share that a whole number of contexts makes.
    alpha = criterion.self_norm_alpha * len(batch) / len(chosen)
    penalty = losses.partition_penalty(
        batch.features.index_select(0, chosen),
        *batch.layer.full(),
        alpha=alpha,
        log_z=criterion.log_z,
        reduction=reduction,
        squash=criterion.score_squashing,
    )
    return loss + penalty if reduction == "sum" else loss.index_add(0, chosen, penalty)


def _generator(device: torch.device) -> torch.Generator:
    """Seeded from torch's own state and the rank.

    fairseq seeds torch from the update number, so that a resumed run repeats exactly, but alike
    on all ranks, which would then draw the same noise.
    """
    seed = int(torch.randint(2**62, ()))
    return torch.Generator(device=device).manual_seed(seed + ranks.own())


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
