"""Criterion ``self_norm_softmax``: the softmax likelihood with a self-normalisation term."""

from argparse import Namespace
from dataclasses import dataclass, field

from fairseq.criterions import register_criterion
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.options import PenaltyConfig, SelfNormalizingConfig


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
