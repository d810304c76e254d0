"""The criterion ``bnce``: a batch's targets are each other's noise."""

from dataclasses import dataclass
from functools import partial
from typing import Callable, List, NamedTuple, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.criterions.base import SelfNormalizingCriterion, TokenBatch
from fairseq_bnce.criterions.flags import RANKING_ALPHA, GroupConfig, Options, PenaltyConfig
from fairseq_bnce.flag import flag
from fairseq_bnce.losses import nce, ranking
from fairseq_bnce.losses.words import distinct, multiplicities

BatchObjective: ChoiceEnum = ChoiceEnum(["binary", "ranking"])


@dataclass
class BatchNCEConfig(GroupConfig, PenaltyConfig):
    objective: BatchObjective = flag(
        "binary",
        "tell the target from each noise word (Oualil & Klakow 2017), or rank it among the batch's "
        "words, which estimate log Z_c (Ma & Collins 2018)",
    )
    self_norm_alpha: Optional[float] = flag(
        None,
        "with --objective ranking: alpha, the weight of (log Z_c - log Z)^2 on the "
        f"batch's estimate of log Z_c (default: {RANKING_ALPHA})",
    )


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


@register_criterion("bnce", dataclass=BatchNCEConfig)
class BatchNCECriterion(SelfNormalizingCriterion):
    """Batch noise-contrastive estimation, binary (Oualil & Klakow 2017) or ranking."""

    def __init__(self, task: FairseqTask, options: Options):
        self_normalising = options.objective != "ranking" or any(options.self_norm_alpha)
        super().__init__(task, options, self_normalising)
        self.is_ranking = options.objective == "ranking"

    def make_words(self, batch: TokenBatch) -> object:
        """Group the targets, add noise samples to each group, and find the distinct words."""
        noise, target, device = self.noise, batch.target, batch.target.device
        groups = [torch.arange(len(target), device=device)]
        if self.options.bnce_group != "batch" and len(target):
            groups = _group(batch, self.options.bnce_group)
        elsewhere = _other_ranks_targets(target) if self.options.gather_noise else target[:0]
        # A single target has no other target to be its noise: one sample makes up for it.
        counts = [max(noise.samples or 0, 2 - len(tokens) - len(elsewhere)) for tokens in groups]
        samples = [noise.sample(device, count) for count in counts]
        ids, (target, elsewhere, *samples) = distinct(target, elsewhere, *samples)
        occurrences = multiplicities(len(ids), target, elsewhere)
        log_p = noise.target_log_p(ids, occurrences, len(target) + len(elsewhere))
        return GroupedWords(ids, groups, target, elsewhere, samples, log_p)

    def objective(self, batch: TokenBatch, reduction: str = "sum") -> Tensor:
        rows, words, losses = self.rows(batch), batch.words, []
        loss: Callable[..., Tensor] = nce.batch_nce
        if self.is_ranking:
            loss = partial(ranking.ranking_nce, alpha=self.self_norm_alpha)
        loss = partial(loss, log_z=self.known_start, reduction=reduction)
        # A target is ranked among the words that it is one of; it is no noise of its own otherwise.
        own = int(self.is_ranking)
        groups, parts = words.groups, [(batch.features, words.target, *words.samples)]
        if len(groups) > 1:
            # One selection for all groups: each selection's gradient is as large as all tokens'.
            order, sizes = torch.cat(groups), [len(group) for group in groups]
            features = batch.features.index_select(0, order).split(sizes)
            parts = list(zip(features, words.target[order].split(sizes), words.samples))
        for features, target, samples in parts:
            in_batch = len(target) - 1 + own + len(words.elsewhere)
            log_q = self.noise.mixture_log_q(words.ids, words.log_p, in_batch, len(samples))
            group_rows, extra = rows._replace(log_q=log_q), torch.cat([words.elsewhere, samples])
            if len(groups) > 1:  # leave out the other groups' words
                used, (target, extra) = distinct(target, extra)
                group_rows = group_rows.select(used)
            losses.append(loss(features, group_rows, target, extra))
        if len(losses) == 1:
            return losses[0]
        if reduction == "sum":
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
    (by_rank,) = ranks.gather_uneven(target)
    return torch.cat([part for rank, part in enumerate(by_rank) if rank != ranks.rank()])
