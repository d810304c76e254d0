"""The registered criteria: of each, its options and its objective."""

from argparse import Namespace
from functools import partial
from typing import Any, Callable, Dict, Type

from fairseq.criterions import register_criterion
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce.criterions import objectives
from fairseq_bnce.criterions.base import SelfNormalizingCriterion
from fairseq_bnce.criterions.options import (
    BatchNCEConfig,
    NoiseConfig,
    NoiseContrastiveConfig,
    RegularizedConfig,
    SampledBCEConfig,
    SelfNormSoftmaxConfig,
)
from fairseq_bnce.losses import bce, nce, ranking
from fairseq_bnce.output_layer.batch import TokenBatch


@register_criterion("bnce", dataclass=BatchNCEConfig)
class BatchNCECriterion(SelfNormalizingCriterion):
    """Batch noise-contrastive estimation, binary (Oualil & Klakow 2017) or ranking."""

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        self.noise.warn_without_draws()
        self.noise.warn_of_places(options.bnce_group)
        self.groups = {"group": options.bnce_group, "gather_noise": options.gather_noise}
        self.is_ranking = str(options.objective) == "ranking"
        self.normalises_itself = not self.is_ranking or any(self.alphas)

    def make_words(self, batch: TokenBatch) -> objectives.GroupedWords:
        return objectives.grouped_words(batch, self.noise, **self.groups)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        rest = (self.words_of(batch), self.noise, self.differentiable_log_z, reduction)
        if not self.is_ranking:
            return objectives.batch_nce(batch, *rest)
        loss = partial(ranking.ranking_nce, alpha=self.self_norm_alpha)
        return objectives.batch_nce(batch, *rest, loss=loss, own=1)


class _DrawnNoiseCriterion(SelfNormalizingCriterion):
    """A loss of every target and of draws; a subclass says which."""

    needs_draws = True
    loss: Callable[..., Tensor]
    are_fresh = False  # whether every token has draws of its own

    def make_words(self, batch: TokenBatch) -> objectives.DrawnWords:
        return objectives.drawn_words(batch, self.noise, are_fresh=self.are_fresh)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        rest = (self.words_of(batch), self.differentiable_log_z, reduction)
        return objectives.of_draws(batch, *rest, loss=self.loss)


@register_criterion("shared_nce", dataclass=NoiseContrastiveConfig)
class SharedNCECriterion(_DrawnNoiseCriterion):
    """NCE with noise shared by the batch (Zoph et al. 2016)."""

    loss = staticmethod(nce.shared_nce)


@register_criterion("sampled_bce", dataclass=SampledBCEConfig)
class SampledBCECriterion(_DrawnNoiseCriterion):
    """Binary cross-entropy of all words, sampled (Gao et al. 2021)."""

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        self.loss = partial(
            bce.sampled_bce,
            estimator=str(options.estimator),
            vocab_size=len(task.target_dictionary),
        )


@register_criterion("nce", dataclass=NoiseContrastiveConfig)
class FreshNCECriterion(_DrawnNoiseCriterion):
    """NCE with fresh noise for every token (Mnih & Teh 2012): the slow baseline."""

    loss = staticmethod(nce.nce)
    are_fresh = True


@register_criterion("sampled_softmax", dataclass=NoiseConfig)
class SampledSoftmaxCriterion(_DrawnNoiseCriterion):
    """Sampled softmax (Bengio & Senecal 2003; Jozefowicz et al. 2016): not self-normalised."""

    normalises_itself = False
    loss = staticmethod(ranking.sampled_softmax)


_DRAWN_BASES: Dict[str, Type[_DrawnNoiseCriterion]] = {
    "shared_nce": SharedNCECriterion,
    "nce": FreshNCECriterion,
}


@register_criterion("nce_regularized", dataclass=RegularizedConfig)
class RegularizedNCECriterion(SelfNormalizingCriterion):
    """Any NCE loss with an explicit self-normalisation term (Goldberger & Melamud 2018, eq. 10)."""

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        self.nce_base = str(options.nce_base)
        if self.nce_base == "bnce":
            self.noise.warn_without_draws()
            self.noise.warn_of_places(options.bnce_group)
        else:
            self.noise.require_draws()
        self.groups = {"group": options.bnce_group, "gather_noise": options.gather_noise}
        self.self_norm_rate = options.self_norm_rate

    def make_words(self, batch: TokenBatch) -> Any:
        if self.nce_base == "bnce":
            return objectives.grouped_words(batch, self.noise, **self.groups)
        return objectives.drawn_words(batch, self.noise, are_fresh=self.nce_base == "nce")

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        words, log_z = self.words_of(batch), self.differentiable_log_z
        if self.nce_base == "bnce":
            loss = objectives.batch_nce(batch, words, self.noise, log_z, reduction)
        else:
            base = _DRAWN_BASES[self.nce_base]
            loss = objectives.of_draws(batch, words, log_z, reduction, loss=base.loss)
        share = {"alpha": self.self_norm_alpha, "rate": self.self_norm_rate}
        return self.with_penalty(loss, batch, reduction, **share)


@register_criterion("self_norm_softmax", dataclass=SelfNormSoftmaxConfig)
class SelfNormSoftmaxCriterion(SelfNormalizingCriterion):
    """The softmax likelihood with an explicit self-normalisation term.

    gamma = 1: log Z_c - m(w) + alpha (log Z_c - log Z)^2 (Devlin et al. 2014; eq. 8 of Goldberger
    & Melamud 2018). gamma < 1: -(m(w) - log Z) + (alpha / gamma) (log Z_c - log Z)^2 on a share
    gamma of the contexts (Andreas & Klein 2015; eq. 9 of Goldberger & Melamud).
    """

    def __init__(self, task: FairseqTask, options: Namespace):
        super().__init__(task, options)
        self.self_norm_rate = options.self_norm_rate
        self.normalises_itself = any(self.alphas)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        if self.self_norm_rate < 1:
            u_nll = self.log_z - self.target_scores(batch)
            u_nll = u_nll.sum() if reduction == "sum" else u_nll
            share = {"alpha": self.self_norm_alpha, "rate": self.self_norm_rate}
            return self.with_penalty(u_nll, batch, reduction, **share)
        log_partition = self.log_partition(batch)
        penalty = self.self_norm_alpha * (log_partition - self.log_z).square()
        loss = log_partition - self.target_scores(batch) + penalty
        return loss.sum() if reduction == "sum" else loss
