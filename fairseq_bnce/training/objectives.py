"""What the criteria with noise minimise: a batch, its noise, and one function of losses.py.

Each objective takes the criterion (for its options and noise distributions), the batch and a
reduction, "sum" or "none", and returns nats. The batch's words are gathered once
(BatchVocabulary), and the loss sees no other row.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Callable, List

import torch
from torch import Tensor

from fairseq_bnce import losses
from fairseq_bnce.projection.batch import BatchVocabulary, TokenBatch
from fairseq_bnce.sparse import ranks

if TYPE_CHECKING:
    from fairseq_bnce.training.criterions import BatchNCECriterion, NoiseContrastiveCriterion

_DEFAULT_SHARED_DRAWS = 100


def batch_nce(criterion: "BatchNCECriterion", batch: TokenBatch, reduction: str) -> Tensor:
    """Over groups of targets that are each other's noise, ``noise_samples`` draws added to each."""
    extra = criterion.noise_samples or 0
    groups = _groups(batch, criterion.bnce_group)
    foreign = _targets_elsewhere(batch) if criterion.gather_noise else batch.target[:0]
    # A lone target has no company to serve as its noise: one draw makes up for it.
    draws = [criterion.draw(batch, max(extra, 2 - len(group) - len(foreign))) for group in groups]
    vocabulary = BatchVocabulary(batch.layer, batch.target, foreign, *draws)
    target, foreign, *draws = vocabulary.ids
    weight, bias, log_z = _projection(criterion, vocabulary)
    loss = _group_loss(criterion)
    parts = [
        loss(
            features,
            words,
            weight,
            bias,
            mixture_log_q(criterion, vocabulary.words, len(words) - 1 + len(foreign), len(noise)),
            noise_ids=torch.cat([foreign, noise]),
            log_z=log_z,
            reduction=reduction,
            gathered=len(groups) == 1,
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


def shared_nce(criterion: "NoiseContrastiveCriterion", batch: TokenBatch, reduction: str) -> Tensor:
    """NCE with draws shared by the batch."""
    noise = _draw(criterion, batch)
    vocabulary = BatchVocabulary(batch.layer, batch.target, draws=noise)
    loss = partial(losses.shared_nce_loss, noise_counts=vocabulary.draw_counts)
    return _of_draws(loss, criterion, batch, vocabulary, vocabulary.draws, reduction)


def fresh_nce(criterion: "NoiseContrastiveCriterion", batch: TokenBatch, reduction: str) -> Tensor:
    """NCE with draws of its own for every token."""
    noise = _draw(criterion, batch, len(batch))
    vocabulary = BatchVocabulary(batch.layer, batch.target, noise)
    return _of_draws(losses.nce_loss, criterion, batch, vocabulary, vocabulary.ids[1], reduction)


def sampled_softmax(
    criterion: "NoiseContrastiveCriterion", batch: TokenBatch, reduction: str
) -> Tensor:
    """The target ranked against draws shared by the batch."""
    vocabulary = BatchVocabulary(batch.layer, batch.target, _draw(criterion, batch))
    loss = losses.sampled_softmax_loss
    return _of_draws(loss, criterion, batch, vocabulary, vocabulary.ids[1], reduction)


NCE_LOSSES = {"bnce": batch_nce, "shared_nce": shared_nce, "nce": fresh_nce}


def mixture_log_q(
    criterion: "NoiseContrastiveCriterion", words: Tensor, in_batch: int, drawn: int
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


def _group_loss(criterion: "BatchNCECriterion") -> Callable[..., Tensor]:
    if criterion.kind == "ranking":
        return partial(losses.ranking_nce_loss, alpha=criterion.self_norm_alpha)
    return losses.batch_nce_loss


def _draw(criterion: "NoiseContrastiveCriterion", batch: TokenBatch, *shape: int) -> Tensor:
    count = criterion.noise_samples
    return criterion.draw(batch, *shape, _DEFAULT_SHARED_DRAWS if count is None else count)


def _of_draws(
    loss: Callable[..., Tensor],
    criterion: "NoiseContrastiveCriterion",
    batch: TokenBatch,
    vocabulary: BatchVocabulary,
    noise: Tensor,
    reduction: str,
) -> Tensor:
    """A loss of the batch's targets and of draws, given as indices into the vocabulary."""
    log_q = criterion.distribution("noise", noise.device).log_q[vocabulary.words]
    weight, bias, log_z = _projection(criterion, vocabulary)
    arguments = (batch.features, vocabulary.ids[0], weight, bias, log_q, noise)
    return loss(*arguments, log_z=log_z, reduction=reduction, gathered=True)


def _projection(criterion: "NoiseContrastiveCriterion", vocabulary: BatchVocabulary):
    """Weight, bias and log Z; a learned log Z is taken off the bias, whose gradient it then has.

    In float32 or better: halves of about log Z would make one of several neighbouring biases.
    """
    weight, bias = vocabulary.weight, vocabulary.bias
    if criterion.learned_log_z is None:
        return weight, bias, criterion.log_z
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
    return weight, bias - criterion.differentiable_log_z, 0.0


def _groups(batch: TokenBatch, kind: str) -> List[Tensor]:
    """Indices of the tokens that serve each other as noise, at least one (maybe empty) group."""
    everyone = torch.arange(len(batch), device=batch.target.device)
    if kind == "time" and len(batch):
        order = batch.time_steps.argsort(stable=True)
        sizes = torch.unique(batch.time_steps, return_counts=True)[1]
        return list(order.split(sizes.tolist()))
    return list(everyone.split(int(kind))) if kind.isdigit() else [everyone]


def _split(tokens: Tensor, groups: List[Tensor]) -> List[Tensor]:
    """The parts of ``tokens`` in each group; all of them, uncopied, where there is one."""
    return [tokens] if len(groups) == 1 else [tokens.index_select(0, group) for group in groups]


def _targets_elsewhere(batch: TokenBatch) -> Tensor:
    """The other ranks' targets; every rank has to ask for them in the same batch."""
    if ranks.count() == 1:
        return batch.target[:0]
    by_rank = ranks.gather_uneven(batch.target)
    return torch.cat([part for rank, part in enumerate(by_rank) if rank != ranks.own()])
