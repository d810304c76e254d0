"""The registered criteria. Each names one objective; all else is shared.

A training step: features through ``model(...)`` (batch.py), padding dropped, noise drawn
(noise.py), the loss over the batch's own words (objectives.py, losses.py). A validation step: the
target's score and the exact partition function (metrics.py says what is logged).
"""

import logging
import math
from dataclasses import fields
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_bnce import losses
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.projection import squashing
from fairseq_bnce.projection.batch import TokenBatch, target_scores
from fairseq_bnce.projection.output_layer import OutputLayer, refuse_fully_sharded
from fairseq_bnce.sparse import ranks, row_sparse
from fairseq_bnce.training import log_z as constants
from fairseq_bnce.training import metrics, objectives
from fairseq_bnce.training.configs import (
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
from fairseq_bnce.training.token_counts import training_target_counts

logger = logging.getLogger(__name__)

_FAR_START = 2.0  # nats between log Z and where log Z_c starts
_SQUASHED = 10.0  # scores that are squashed stay below it in absolute value,
_FITTING = 9.9  # and a bias can start them up to here (losses.unsquashed)


class SelfNormalizingCriterion(FairseqCriterion):
    """Shared by all criteria; a subclass says what :meth:`objective` is.

    Args:
        task: a language modeling or translation task.
        Others: the fields of :class:`configs.SelfNormalizingConfig`.

    Attributes:
        initial_log_z: where the constant log Z starts, nats; None until it is measured.

    Raises:
        ValueError: naming the flag, what was required and what came.
    """

    # What some criteria have as flags.
    row_sparse = False
    score_squashing = False
    # Whether the loss draws log Z_c to log Z, so that scores need no softmax.
    normalises_itself = True

    def __init__(
        self,
        task: FairseqTask,
        log_z: str,
        init_output_bias: str,
        valid_partition_rate: float,
        sentence_avg: bool,
        ddp_backend: str,
        train_subset: str,
        **checkpoint: Optional[str],
    ):
        super().__init__(task)
        if ddp_backend == "fully_sharded":
            refuse_fully_sharded()
        self._flag_log_z = self.initial_log_z = constants.parsed(log_z)
        rate_fits = 0 <= valid_partition_rate <= 1
        require("--valid-partition-rate", "from 0 to 1", valid_partition_rate, rate_fits)
        self.initial_bias = str(init_output_bias)
        self.valid_partition_rate = valid_partition_rate
        self.is_legacy_ddp = ddp_backend in ("legacy_ddp", "no_c10d")
        self.sentence_avg = sentence_avg
        self.train_subset = train_subset
        self._checkpoint = constants.CheckpointChoice(**checkpoint)
        self._origin: Optional[str] = None  # of initial_log_z, once it is decided on
        self._is_prepared = self._has_begun = False
        self._goes_on = False  # from a checkpoint
        # Made when first asked for; plain objects, which must not follow .half().
        self._distributions: Dict[str, NoiseDistribution] = {}

    @classmethod
    def build_criterion(cls, cfg: FairseqDataclass, task: FairseqTask) -> "FairseqCriterion":
        """Hand the configuration's fields to the constructor, which takes flat values."""
        names = [f.name for f in fields(getattr(cls, "__dataclass")) if f.name != "_name"]
        return cls(task, **{name: getattr(cfg, name) for name in names})

    @property
    def log_z(self) -> float:
        """The constant log Z, nats; 0 until it is known, or if the loss draws scores to none."""
        known = self.normalises_itself and self.initial_log_z is not None
        return self.initial_log_z if known else 0.0

    @property
    def differentiable_log_z(self) -> Union[float, Tensor]:
        """log Z as a loss takes it: a 0-d float32 tensor if it is learned."""
        return self.log_z

    def begin_epoch(self, epoch: int) -> None:
        """Do as flags say of this epoch, counted from 1; the language_modeling task calls it."""

    def scoring_state(self) -> Dict[str, Any]:
        """What a checkpoint has to know in order to score: log Z only if scores come near it."""
        state: Dict[str, Any] = {"score_squashing": True} if self.score_squashing else {}
        if self.normalises_itself and self.initial_log_z is not None:
            state["log_z"] = float(self.log_z)
        return state

    def forward(
        self, model: nn.Module, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Loss (nats, summed over tokens), sample size and logging outputs of a batch.

        In training mode the loss is the objective; in evaluation mode the exact NLL. With
        ``reduce=False`` it is (N,), one value for each token that is not padding.
        """
        batch = TokenBatch.from_sample(model, sample, self.padding_idx)
        logged: Dict[str, Any] = {}
        if self._origin is None:
            self._decide_log_z(by_bias=None)
        if model.training:
            self._begin(batch)
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
        self._take_squashing(model)
        if self.row_sparse:
            row_sparse.mark(model, *layer.parameters(), legacy_ddp=self.is_legacy_ddp)
        q = self._bias_distribution(layer.bias) if untrained else None
        self._decide_log_z(by_bias=None if q is None else self._carried_by_bias(q))
        if q is not None:
            self._init_output_bias(layer.bias, q)
        self._is_prepared = True

    def _take_squashing(self, model: nn.Module) -> None:
        """A model's scores are squashed for good, by whatever criterion it is read."""
        if self.score_squashing:
            squashing.squash(model)
        elif squashing.is_squashed(model):
            required = "--criterion self_norm_softmax with it, as the model was trained"
            require("--score-squashing", required, type(self).__name__, False)

    def _bias_distribution(self, bias: Optional[Tensor]) -> Optional[NoiseDistribution]:
        """What ``--init-output-bias`` sets a bias from, if there is one to set."""
        if bias is None or self.initial_bias == "none":
            return None
        if self.initial_bias == "uniform":
            return NoiseDistribution.uniform(len(bias))
        return self._unigram()

    def _carried_by_bias(self, q: NoiseDistribution) -> float:
        """The log Z with which a bias log q + log Z starts, nats: 0, or where all of it fits."""
        if not self.score_squashing:
            return 0.0
        lowest, highest = float(q.log_q.min()), float(q.log_q.max())
        fitting = min(max(0.0, -_FITTING - lowest), _FITTING - highest)
        return round(fitting + 0.005, 2) if fitting else 0.0

    def _init_output_bias(self, bias: Tensor, q: NoiseDistribution) -> None:
        scores = q.log_q + (self.initial_log_z or 0.0)
        with torch.no_grad():
            bias.copy_(losses.unsquashed(scores) if self.score_squashing else scores)

    def _unigram(self) -> NoiseDistribution:
        return self.distribution("unigram", torch.device("cpu"))

    def _decide_log_z(self, by_bias: Optional[float]) -> None:
        """Before the first batch: what log Z is, or that it is to be measured there."""
        carried = self.task.state.state_dict.get("log_z")
        if carried is not None:  # the task was loaded with the model, as fairseq-validate does
            start = constants.Start(carried, "carried by the checkpoint")
        elif self.normalises_itself:
            found = constants.restored(self._checkpoint)
            self._goes_on = found is not None
            start = constants.start(self._flag_log_z, found, by_bias)
        else:
            of_bias = self._flag_log_z if self._flag_log_z is not None else by_bias or 0.0
            start = constants.Start(of_bias, "none, since this loss does not normalise scores")
        self.initial_log_z, self._origin = start

    def _begin(self, batch: TokenBatch) -> None:
        """On the first training batch that has a token: check, measure log Z, say what it is."""
        if self._has_begun:
            return
        self._check_flags(batch.layer)
        if self.initial_log_z is None:
            self.initial_log_z = self._measured_log_z(batch)
        if self.initial_log_z is None:
            return  # no rank has a token: the next batch is the first
        self._has_begun = True
        self.task.state.merge_state_dict(self.scoring_state())
        logger.info(f"log Z: {self._said_log_z()}")
        logger.info(f"loss: {self._said_loss()}")

    def _measured_log_z(self, batch: TokenBatch) -> Optional[float]:
        """The mean of log Z_c over contexts of all ranks' batches; the same on every rank."""
        tokens = constants.contexts_to_measure(len(batch), len(batch.layer), batch.target.device)
        with torch.no_grad():
            value = constants.measured(self.log_partition(batch, tokens))
        if value is not None:
            self._origin += "measured, the mean of log Z_c on the first training batch"
        return value

    def _task_flags(self) -> List[str]:
        """The flags in use that the language_modeling task alone carries out."""
        return []

    def _check_flags(self, layer: OutputLayer) -> None:
        """That the task carries out what it has to; warn of a start far from log Z."""
        for flag in self._task_flags():
            task = type(self.task).__name__
            require(flag, "--task language_modeling", task, self._is_prepared)
        log_v = math.log(len(layer))
        given = self._flag_log_z is not None and self.normalises_itself
        if given and self.score_squashing:
            self._check_reach(log_v)
        is_far = given and abs(self._flag_log_z - log_v) > _FAR_START
        if is_far and layer.bias is None and not self._goes_on:
            logger.warning(
                f"{type(layer.decoder).__name__} has no output bias: its log Z_c starts near "
                f"log V = {log_v:.1f}, far from --log-z {self._flag_log_z:g}, and it may take most "
                "of the training to get there; --log-z auto starts right"
            )
        elif layer.bias is not None and not self._is_prepared and self.initial_bias != "none":
            logger.warning(
                f"--init-output-bias {self.initial_bias} is applied by the language_modeling task "
                f"alone; under {type(self.task).__name__} the bias starts as the model has it"
            )

    def _check_reach(self, log_v: float) -> None:
        low, high = log_v - _SQUASHED, log_v + _SQUASHED
        required = f"from {low:.1f} to {high:.1f}, since --score-squashing keeps scores within 10"
        require("--log-z", required, self._flag_log_z, low < self._flag_log_z < high)

    def _said_log_z(self) -> str:
        if not self.normalises_itself:
            return f"{self._origin}; scoring needs its shift"
        return f"{self.log_z:g} nats ({self._origin})"

    def _said_loss(self) -> str:
        share = {0: "unnormalised", 1: "exact"}.get(self.valid_partition_rate, "estimated")
        ppl = "ppl" if self.valid_partition_rate else "u_ppl"
        per = "a sentence" if self.sentence_avg else "a token"
        return (
            f"in training lines the objective of {type(self).__name__}, in validation lines the "
            f"{share} negative log-likelihood, whose perplexity is {ppl}; both in bits {per}, and "
            "not to be compared with each other"
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
        return self.log_partition(batch, tokens) - self.log_z

    def _make_distribution(self, kind: str) -> NoiseDistribution:
        return NoiseDistribution(training_target_counts(self.task, self.train_subset))


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
        counts = training_target_counts(self.task, self.train_subset)
        return NoiseDistribution(counts, power)


class NoiseContrastiveCriterion(NoiseCriterion):
    """Shared by the NCE family, whose log Z may be learned.

    What is learned is how far log Z goes from where it starts: the start may be known on the first
    batch only, when --fp16 has copied the parameters, and halves tell small numbers well apart.

    Args:
        task: see above.
        Others: the fields of :class:`configs.NoiseContrastiveConfig`.
    """

    def __init__(self, task: FairseqTask, learn_log_z: bool, **others: Any):
        super().__init__(task, **others)
        if learn_log_z:
            # Of one dimension: fairseq's legacy_ddp can't reduce one of none.
            self.learned_log_z = nn.Parameter(torch.zeros(1))

    @property
    def log_z(self) -> float:
        learned = 0.0 if self.learned_log_z is None else self.learned_log_z.item()
        return super().log_z + learned

    @property
    def differentiable_log_z(self) -> Union[float, Tensor]:
        if self.learned_log_z is None:
            return self.log_z
        return super().log_z + self.learned_log_z[0].float()

    def get_extra_state(self) -> Dict[str, Any]:
        """Saved beside what is learned."""
        return {"initial_log_z": self.initial_log_z}

    def set_extra_state(self, state: Dict[str, Any]) -> None:
        """Called where a checkpoint with a learned log Z is loaded, which goes on from there."""
        if state["initial_log_z"] is None:
            return  # it was saved before the first batch
        self.initial_log_z, given = state["initial_log_z"], self._flag_log_z
        unused = "" if given in (None, self.initial_log_z) else f", and not from --log-z {given:g}"
        self._origin = f"as far as it was learned, from {self.initial_log_z:g} on{unused}"

    def load_state_dict(self, state_dict: Optional[Dict[str, Any]], *others: Any, **named: Any):
        """As torch's; None, from a checkpoint of a training that learned no log Z, changes nothing.

        Checkpoints without a start hold log Z itself in the place of what it gained.
        """
        if state_dict is None:
            return None
        state = {"_extra_state": {"initial_log_z": 0.0}, **state_dict}
        state["learned_log_z"] = state["learned_log_z"].reshape(1)
        return super().load_state_dict(state, *others, **named)


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
        self.normalises_itself = self.kind == "binary" or self_norm_alpha > 0

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

    normalises_itself = False

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
        self.normalises_itself = self_norm_alpha > 0

    def _task_flags(self) -> List[str]:
        return ["--score-squashing"] if self.score_squashing else []

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
        log_z=criterion.differentiable_log_z,
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
