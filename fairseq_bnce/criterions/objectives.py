"""What the criteria with noise minimise: a batch, its noise, and one function of losses.

An objective has two steps. The first draws the noise and finds the batch's distinct words; it needs
no model. The second gathers the words' rows once and calls the core of a loss. Losses are in nats.
"""

from functools import partial
from typing import Callable, List, NamedTuple, Optional, Union

import torch
from torch import Tensor

from fairseq_bnce import ranks
from fairseq_bnce.criterions.noise_source import NoiseSource
from fairseq_bnce.losses import nce
from fairseq_bnce.losses.precision import at_least_float32
from fairseq_bnce.losses.words import Words, distinct, distinct_with_draws, multiplicities
from fairseq_bnce.output_layer.batch import TokenBatch

_DEFAULT_DRAWS = 100
LogZ = Union[float, Tensor]


class GroupedWords(NamedTuple):
    """The words of a batch whose targets are each other's noise.

    Attributes:
        ids: (U,) the distinct words.
        groups: the indices of each group's tokens.
        target: (N,) as indices into the words.
        foreign: the other ranks' targets, likewise.
        draws: of each group, likewise.
        log_p: (U,) log-probabilities of targets.
    """

    ids: Tensor
    groups: List[Tensor]
    target: Tensor
    foreign: Tensor
    draws: List[Tensor]
    log_p: Tensor


def grouped_words(
    batch: TokenBatch, noise: NoiseSource, *, group: str = "batch", gather_noise: bool = False
) -> GroupedWords:
    """The words of groups of targets that are each other's noise, draws added to each group.

    Args:
        batch: its targets alone are read.
        noise: the source of draws.
        group: "batch", "time", or how many tokens, drawn at random, make a group.
        gather_noise: whether the other ranks' targets are noise too.
    """
    groups = _groups(batch, group)
    elsewhere = _targets_elsewhere(batch) if gather_noise else batch.target[:0]
    # A lone target has no company to serve as its noise: one draw makes up for it.
    counts = [max(noise.samples or 0, 2 - len(tokens) - len(elsewhere)) for tokens in groups]
    draws = [noise.draw(batch.target.device, count) for count in counts]
    ids, (target, foreign, *draws) = distinct(batch.target, elsewhere, *draws)
    occurrences = multiplicities(len(ids), target, foreign)
    log_p = noise.log_p(ids, occurrences, len(target) + len(foreign))
    return GroupedWords(ids, groups, target, foreign, draws, log_p)


def batch_nce(
    batch: TokenBatch,
    words: GroupedWords,
    noise: NoiseSource,
    log_z: LogZ,
    reduction: str,
    *,
    loss: Callable[..., Tensor] = nce.batch_nce,
    own: int = 0,
) -> Tensor:
    """The ``loss`` of each group of targets.

    Args:
        log_z: a 0-d tensor if it is learned.
        reduction: "sum" or "none".
        loss: the core of a loss.
        own: 1 where a target is one of the words that it is ranked among, and not noise to itself.
    """
    groups, foreign = words.groups, words.foreign
    rows = _rows(batch, words.ids, log_z)
    options = {"log_z": 0.0 if torch.is_tensor(log_z) else log_z, "reduction": reduction}
    parts = []
    for features, target, drawn in zip(
        _split(batch.features, groups), _split(words.target, groups), words.draws
    ):
        in_batch = len(target) - 1 + own + len(foreign)
        log_q = noise.mixture_log_q(words.ids, words.log_p, in_batch, len(drawn))
        own_words, extra = rows._replace(log_q=log_q), torch.cat([foreign, drawn])
        if len(groups) > 1:  # no scores of the other groups' words
            used, (target, extra) = distinct(target, extra)
            own_words = own_words.select(used)
        parts.append(loss(features, own_words, target, extra, **options))
    if len(parts) == 1:
        return parts[0]
    if reduction == "sum":
        return torch.stack(parts).sum()
    return torch.cat(parts)[torch.cat(groups).argsort()]


class DrawnWords(NamedTuple):
    """The words of a batch whose noise is drawn.

    Attributes:
        ids: (U,) the distinct words.
        target: (N,) as indices into the words.
        draws: (K',) the distinct draws, or (N, K) fresh ones, likewise.
        counts: (K',) how often each of these was drawn; None for fresh ones.
        log_q: (U,)
    """

    ids: Tensor
    target: Tensor
    draws: Tensor
    counts: Optional[Tensor]
    log_q: Tensor


def drawn_words(batch: TokenBatch, noise: NoiseSource, *, are_fresh: bool = False) -> DrawnWords:
    """The words of the targets and of draws: the batch's or, if fresh, each token's own."""
    count = _DEFAULT_DRAWS if noise.samples is None else noise.samples
    drawn = noise.draw(batch.target.device, *([len(batch)] if are_fresh else []), count)
    counts: Optional[Tensor] = None
    if are_fresh:
        ids, (target, draws) = distinct(batch.target, drawn)
    else:
        ids, (target,), draws, counts = distinct_with_draws(drawn, batch.target)
    return DrawnWords(ids, target, draws, counts, noise.log_q(ids))


def of_draws(
    batch: TokenBatch,
    words: DrawnWords,
    log_z: LogZ,
    reduction: str,
    *,
    loss: Callable[..., Tensor],
) -> Tensor:
    """The core of a ``loss`` of every target and the draws; see :func:`batch_nce`."""
    rows = _rows(batch, words.ids, log_z)._replace(log_q=words.log_q)
    if words.counts is not None:
        loss = partial(loss, counts=words.counts)
    options = {"log_z": 0.0 if torch.is_tensor(log_z) else log_z, "reduction": reduction}
    return loss(batch.features, rows, words.target, words.draws, **options)


def _rows(batch: TokenBatch, ids: Tensor, log_z: LogZ) -> Words:
    """The words' rows. A learned log Z is taken off the bias, whose gradient it then has.

    In float32 or better: halves of about log Z would make one of several neighbouring biases.
    """
    weight, bias = batch.layer.rows(ids)
    if not torch.is_tensor(log_z):
        return Words(weight, bias)
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return Words(weight, bias.to(at_least_float32(bias)) - log_z)


def _groups(batch: TokenBatch, kind: str) -> List[Tensor]:
    """Indices of the tokens that serve each other as noise, at least one (maybe empty) group."""
    if kind.isdigit():
        # Neighbours would make a context's own words its noise.
        order = torch.randperm(len(batch), device=batch.target.device)
        return list(order.split(int(kind)))
    if kind == "time" and len(batch):
        order = batch.time_steps.argsort(stable=True)
        sizes = torch.unique(batch.time_steps, return_counts=True)[1]
        return list(order.split(sizes.tolist()))
    return [torch.arange(len(batch), device=batch.target.device)]


def _split(tokens: Tensor, groups: List[Tensor]) -> List[Tensor]:
    """The parts of ``tokens`` in each group; all of them, uncopied, where there is one."""
    if len(groups) == 1:
        return [tokens]
    # One selection for all: each has a gradient as large as all tokens'.
    return list(tokens.index_select(0, torch.cat(groups)).split([len(group) for group in groups]))


def _targets_elsewhere(batch: TokenBatch) -> Tensor:
    """The other ranks' targets; every rank has to ask for them in the same batch."""
    if ranks.count() == 1:
        return batch.target[:0]
    by_rank = ranks.gather_uneven(batch.target)
    return torch.cat([part for rank, part in enumerate(by_rank) if rank != ranks.rank()])
