"""The criteria that fairseq-train knows by name, their flags, and the noise of a batch.

A criterion finds the words of a batch before the model runs (``make_words``), and calls the core of
a loss with their rows (``objective``). Noise is the batch's own targets (:func:`grouped_words`), or
sampled (:func:`sampled_words`).
"""

from argparse import Namespace
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.noise_source import NoiseSource
from fairseq_bnce.criterions.options import (
    RANKING_ALPHA,
    GroupConfig,
    NoiseConfig,
    NoiseContrastiveConfig,
    PenaltyConfig,
    SelfNormalizingConfig,
)
from fairseq_bnce.losses import bce, nce, ranking
from fairseq_bnce.losses.words import Words, distinct, distinct_with_draws, multiplicities

BatchObjective: Any = ChoiceEnum(["binary", "ranking"])
Estimator: Any = ChoiceEnum(["complementary", "is", "cps"])
BaseLoss: Any = ChoiceEnum(["bnce", "shared_nce", "nce"])
_DEFAULT_SAMPLES = 100


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


@register_criterion("bnce", dataclass=BatchNCEConfig)
class BatchNCECriterion(SelfNormalizingCriterion):
    """Batch noise-contrastive estimation, binary (Oualil & Klakow 2017) or ranking."""

    def __init__(self, task: FairseqTask, options: Namespace):
        self_normalising = str(options.objective) == "binary" or any(options.self_norm_alpha)
        super().__init__(task, options, self_normalising)
        self.is_ranking = str(options.objective) == "ranking"

    def make_words(self, batch: TokenBatch) -> "GroupedWords":
        return grouped_words(batch, self.noise, self.options)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        loss: Callable[..., Tensor] = nce.batch_nce
        if self.is_ranking:
            loss = partial(ranking.ranking_nce, alpha=self.self_norm_alpha)
        # A target is ranked among the words that it is one of; it is no noise of its own otherwise.
        own, options = int(self.is_ranking), {"log_z": self.known_start, "reduction": reduction}
        return grouped_loss(batch, self.rows(batch), self.noise, loss, own, **options)


@dataclass
class SampledBCEConfig(NoiseContrastiveConfig):
    estimator: Estimator = field(
        default="complementary",
        metadata={
            "help": "how the samples estimate the sum over all words: is, importance sampling, "
            "weighs each by 1 / (K q); cps, compensated partial summation, all by V / K; "
            "complementary is importance sampling without the samples that are the target, whose "
            "own term is computed"
        },
    )


class _SampledNoiseCriterion(SelfNormalizingCriterion):
    loss: Callable[..., Tensor]
    are_fresh = False  # whether every token has samples of its own

    def make_words(self, batch: TokenBatch) -> "SampledWords":
        return sampled_words(batch, self.noise, self.are_fresh)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        options = {"log_z": self.known_start, "reduction": reduction}
        return sampled_loss(batch, self.rows(batch), self.loss, **options)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(_SampledNoiseCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    loss = staticmethod(nce.shared_nce)


@register_criterion("nce", dataclass=NoiseContrastiveConfig)
class FreshNCECriterion(_SampledNoiseCriterion):
    """NCE with fresh noise for every token (Mnih & Teh 2012): the slow baseline."""

    loss = staticmethod(nce.nce)
    are_fresh = True


@register_criterion("sampled_bce", dataclass=SampledBCEConfig)
class SampledBCECriterion(_SampledNoiseCriterion):
    """Binary cross-entropy of all words, sampled (Gao et al. 2021)."""

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        size = len(task.target_dictionary)
        self.loss = partial(bce.sampled_bce, estimator=str(options.estimator), vocab_size=size)


@register_criterion("sampled_softmax", dataclass=NoiseConfig)
class SampledSoftmaxCriterion(_SampledNoiseCriterion):
    """Sampled softmax (Bengio & Senecal 2003; Jozefowicz et al. 2016): not self-normalised."""

    loss = staticmethod(ranking.sampled_softmax)

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options, normalises_itself=False)


@dataclass
class RegularizedConfig(GroupConfig, PenaltyConfig):
    nce_base: BaseLoss = field(default="bnce", metadata={"help": "the NCE loss to regularise"})
    # Goldberger & Melamud's tables say 10, with gamma 0.1. Their figures fit a penalty that is not
    # divided by gamma, which eq. 10 does, and has the factor 0.5 of eq. 10. The default is eq. 10's
    # 1: NCE-R of up to 100 units then has about the sigma_z of DEV.
    self_norm_alpha: float = field(
        default=1.0,
        metadata={
            "help": "alpha, the weight of (log Z_c - log Z)^2 on a share gamma, divided by gamma; "
            "0.5 comes near what Goldberger & Melamud (2018) report for alpha 10 and gamma 0.1"
        },
    )
    self_norm_rate: float = field(
        default=0.1,
        metadata={"help": "gamma, the share of contexts that are regularised, (0, 1]"},
    )


@register_criterion("nce_regularized", dataclass=RegularizedConfig)
class RegularizedNCECriterion(SelfNormalizingCriterion):
    """An NCE loss + (alpha / gamma) (log Z_c - log Z)^2 (Goldberger & Melamud 2018, eq. 10)."""

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        self.nce_base = str(options.nce_base)

    def make_words(self, batch: TokenBatch) -> Any:
        if self.nce_base == "bnce":
            return grouped_words(batch, self.noise, self.options)
        return sampled_words(batch, self.noise, are_fresh=self.nce_base == "nce")

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        rows = self.rows(batch)
        options: Dict[str, Any] = {"log_z": self.known_start, "reduction": reduction}
        if self.nce_base == "bnce":
            loss = grouped_loss(batch, rows, self.noise, **options)
        else:
            base = nce.nce if self.nce_base == "nce" else nce.shared_nce
            loss = sampled_loss(batch, rows, base, **options)
        return self.with_penalty(loss, batch, reduction)


@dataclass
class SelfNormSoftmaxConfig(SelfNormalizingConfig, PenaltyConfig):
    self_norm_alpha: float = field(
        default=1.0, metadata={"help": "alpha, the weight of (log Z_c - log Z)^2"}
    )
    self_norm_rate: float = field(
        default=1.0,
        metadata={
            "help": "gamma, the share of contexts that are regularised, (0, 1]; below 1 the "
            "likelihood is the unnormalised one"
        },
    )
    score_squashing: bool = field(
        default=False,
        metadata={"help": "replace scores x by 10 tanh(x / 5), also when the model scores text"},
    )


@register_criterion("self_norm_softmax", dataclass=SelfNormSoftmaxConfig)
class SelfNormSoftmaxCriterion(SelfNormalizingCriterion):
    """The softmax likelihood with an explicit self-normalisation term.

    gamma = 1: log Z_c - m(w) + alpha (log Z_c - log Z)^2 (Devlin et al. 2014; eq. 8 of Goldberger
    & Melamud 2018). gamma < 1: -(m(w) - log Z) + (alpha / gamma) (log Z_c - log Z)^2 on a share
    gamma of the contexts (Andreas & Klein 2015; eq. 9 of Goldberger & Melamud).
    """

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options, normalises_itself=any(options.self_norm_alpha))

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        scores = self.target_scores(batch)
        if self.options.self_norm_rate < 1:
            loss = self.log_z - scores
            loss = loss.sum() if reduction == "sum" else loss
            return self.with_penalty(loss, batch, reduction)
        log_partition = self.log_partition(batch)
        penalty = self.self_norm_alpha * (log_partition - self.log_z).square()
        loss = log_partition - scores + penalty
        return loss.sum() if reduction == "sum" else loss


class GroupedWords(NamedTuple):
    """The words of a batch whose targets are each other's noise.

    Attributes:
        ids: (U,) the distinct words.
        groups: the indices of each group's tokens.
        target: (N,) as indices into ``ids``.
        elsewhere: the other ranks' targets, as indices into ``ids``.
        samples: each group's noise samples, as indices into ``ids``.
        log_p: (U,) log-probabilities of targets.
    """

    ids: Tensor
    groups: List[Tensor]
    target: Tensor
    elsewhere: Tensor
    samples: List[Tensor]
    log_p: Tensor


def grouped_words(batch: TokenBatch, noise: NoiseSource, options: Namespace) -> GroupedWords:
    """Group the targets, add noise samples to each group, and find the distinct words.

    Args:
        batch: only its targets are read.
        noise: the source of samples.
        options: bnce_group ("batch", "time" or the size of random groups), and gather_noise.
    """
    target, device = batch.target, batch.target.device
    groups = [torch.arange(len(batch), device=device)]
    if options.bnce_group != "batch" and len(batch):
        groups = _group(batch, options.bnce_group)
    elsewhere = _other_ranks_targets(target) if options.gather_noise else target[:0]
    # A single target has no other target to be its noise: one sample makes up for it.
    counts = [max(noise.samples or 0, 2 - len(tokens) - len(elsewhere)) for tokens in groups]
    samples = [noise.sample(device, count) for count in counts]
    ids, (target, elsewhere, *samples) = distinct(target, elsewhere, *samples)
    occurrences = multiplicities(len(ids), target, elsewhere)
    log_p = noise.target_log_p(ids, occurrences, len(target) + len(elsewhere))
    return GroupedWords(ids, groups, target, elsewhere, samples, log_p)


def grouped_loss(
    batch: TokenBatch,
    rows: Words,
    noise: NoiseSource,
    loss: Callable[..., Tensor] = nce.batch_nce,
    own: int = 0,
    **options: Any,
) -> Tensor:
    """Compute the ``loss`` of each group of targets: the sum, or (N,).

    Args:
        batch: its words are :class:`GroupedWords`.
        rows: of these words.
        loss: the core of a loss.
        own: 1 if a target is noise of its own, else 0.
        options: log_z and reduction.
    """
    words, losses = batch.words, []
    groups, parts = words.groups, [(batch.features, words.target, *words.samples)]
    if len(groups) > 1:
        # One selection for all groups: each selection's gradient is as large as all tokens'.
        order, sizes = torch.cat(groups), [len(group) for group in groups]
        features = batch.features.index_select(0, order).split(sizes)
        parts = list(zip(features, words.target[order].split(sizes), words.samples))
    for features, target, samples in parts:
        in_batch = len(target) - 1 + own + len(words.elsewhere)
        log_q = noise.mixture_log_q(words.ids, words.log_p, in_batch, len(samples))
        group_rows, extra = rows._replace(log_q=log_q), torch.cat([words.elsewhere, samples])
        if len(groups) > 1:  # leave out the other groups' words
            used, (target, extra) = distinct(target, extra)
            group_rows = group_rows.select(used)
        losses.append(loss(features, group_rows, target, extra, **options))
    if len(losses) == 1:
        return losses[0]
    if options["reduction"] == "sum":
        return torch.stack(losses).sum()
    return torch.cat(losses)[torch.cat(groups).argsort()]


def _group(batch: TokenBatch, kind: str) -> List[Tensor]:
    """Return the indices of the tokens that are each other's noise."""
    if kind == "time":
        order = batch.time_steps.argsort(stable=True)
        sizes = torch.unique(batch.time_steps, return_counts=True)[1]
        return list(order.split(sizes.tolist()))
    # At random: neighbours would make a context's own words its noise.
    order = torch.randperm(len(batch), device=batch.target.device)
    return list(order.split(int(kind)))


def _other_ranks_targets(target: Tensor) -> Tensor:
    """Return the other ranks' targets; every rank has to call this in the same batch."""
    if ranks.count() == 1:
        return target[:0]
    by_rank = ranks.gather_uneven(target)
    return torch.cat([part for rank, part in enumerate(by_rank) if rank != ranks.rank()])


class SampledWords(NamedTuple):
    """The words of a batch with sampled noise.

    Attributes:
        ids: (U,) the distinct words.
        target: (N,) as indices into ``ids``.
        samples: (K',) the distinct samples, or (N, K) fresh ones, as indices into ``ids``.
        counts: (K',) how often each was sampled; None for fresh samples.
        log_q: (U,)
    """

    ids: Tensor
    target: Tensor
    samples: Tensor
    counts: Optional[Tensor]
    log_q: Tensor


def sampled_words(batch: TokenBatch, noise: NoiseSource, are_fresh: bool) -> SampledWords:
    """Sample noise for the batch or, if ``are_fresh``, for each token; find the distinct words."""
    count = _DEFAULT_SAMPLES if noise.samples is None else noise.samples
    shape = (len(batch), count) if are_fresh else (count,)
    sampled = noise.sample(batch.target.device, *shape)
    counts: Optional[Tensor] = None
    if are_fresh:
        ids, (target, samples) = distinct(batch.target, sampled)
    else:
        ids, (target,), samples, counts = distinct_with_draws(sampled, batch.target)
    return SampledWords(ids, target, samples, counts, noise.log_q(ids))


def sampled_loss(
    batch: TokenBatch, rows: Words, loss: Callable[..., Tensor], **options: Any
) -> Tensor:
    """Compute a ``loss`` of the targets and the sampled noise.

    Args:
        batch: its words are :class:`SampledWords`.
        rows: of these words.
        loss: the core of a loss.
        options: log_z and reduction.
    """
    words = batch.words
    if words.counts is not None:
        options["counts"] = words.counts
    rows = rows._replace(log_q=words.log_q)
    return loss(batch.features, rows, words.target, words.samples, **options)
