"""Criterion ``nce_regularized``: an NCE loss with an explicit self-normalisation term."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict

from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.batch_nce import grouped_loss, grouped_words
from fairseq_bnce.criterions.options import GroupConfig, PenaltyConfig
from fairseq_bnce.criterions.sampled_noise import sampled_loss, sampled_words
from fairseq_bnce.losses import nce

BaseLoss: Any = ChoiceEnum(["bnce", "shared_nce", "nce"])


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
