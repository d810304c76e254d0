"""What the criteria with noise minimise: a batch, its noise, and one function of losses.

An objective has two steps. The first draws the noise and finds the batch's distinct words
(BatchVocabulary); it needs no model. The second gathers the words' rows once and calls the loss,
which sees no other row. Losses are in nats.
"""

from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce import losses, ranks
from fairseq_bnce.criterions.noise_source import NoiseSource
from fairseq_bnce.losses.gathering import multiplicities
from fairseq_bnce.losses.precision import at_least_float32
from fairseq_bnce.output_layer.batch import BatchVocabulary, TokenBatch

_DEFAULT_DRAWS = 100
LogZ = Union[float, Tensor]


class GroupedWords(NamedTuple):
    """The words of a batch whose targets are each other's noise.

    Attributes:
        words: (U,) the distinct words.
        groups: the indices of each group's tokens.
        target: (N,) as indices into the words.
        foreign: the other ranks' targets, likewise.
        draws: of each group, likewise.
        log_p: (U,) log-probabilities of targets.
    """

    words: Tensor
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
    vocabulary = BatchVocabulary(batch.target, elsewhere, *draws)
    target, foreign, *draws = vocabulary.ids
    zeros = torch.zeros_like(vocabulary.words, dtype=torch.float32)
    occurrences = multiplicities(zeros, target, foreign)
    log_p = noise.log_p(vocabulary.words, occurrences, len(target) + len(foreign))
    return GroupedWords(vocabulary.words, groups, target, foreign, draws, log_p)


def batch_nce(
    batch: TokenBatch,
    words: GroupedWords,
    noise: NoiseSource,
    log_z: LogZ,
    reduction: str,
    *,
    loss: Callable[..., Tensor] = losses.batch_nce_loss,
    own: int = 0,
) -> Tensor:
    """The ``loss`` of each group of targets.

    Args:
        log_z: a 0-d tensor if it is learned.
        reduction: "sum" or "none".
        own: 1 where a target is one of the words that it is ranked among, and not noise to itself.
    """
    weight, bias, log_z = _rows(batch, words.words, log_z)
    groups, foreign = words.groups, words.foreign
    parts = []
    for features, target, drawn in zip(
        _split(batch.features, groups), _split(words.target, groups), words.draws
    ):
        in_batch = len(target) - 1 + own + len(foreign)
        log_q = noise.mixture_log_q(words.words, words.log_p, in_batch, len(drawn))
        extra = torch.cat([foreign, drawn])
        options = {"log_z": log_z, "reduction": reduction, "gathered": len(groups) == 1}
        parts.append(loss(features, target, weight, bias, log_q, noise_ids=extra, **options))
    if len(parts) == 1:
        return parts[0]
    if reduction == "sum":
        return torch.stack(parts).sum()
    return torch.cat(parts)[torch.cat(groups).argsort()]


class DrawnWords(NamedTuple):
    """The words of a batch whose noise is drawn.

    Attributes:
        words: (U,) the distinct words.
        target: (N,) as indices into the words.
        draws: (K,), or (N, K) if they are fresh, likewise.
        counts: (K,) how many draws each of these stands for, if equal draws are merged.
        log_q: (U,)
    """

    words: Tensor
    target: Tensor
    draws: Tensor
    counts: Optional[Tensor]
    log_q: Tensor


def drawn_words(
    batch: TokenBatch, noise: NoiseSource, *, are_fresh: bool = False, are_merged: bool = False
) -> DrawnWords:
    """The words of the targets and of draws, which are the batch's or, if fresh, the token's own.

    Equal draws are merged for a loss that takes ``noise_counts``: it scores each word once.
    """
    count = _DEFAULT_DRAWS if noise.samples is None else noise.samples
    draws = noise.draw(batch.target.device, *([len(batch)] if are_fresh else []), count)
    if are_merged:
        vocabulary = BatchVocabulary(batch.target, draws=draws)
        draws, counts = vocabulary.draws, vocabulary.draw_counts
    else:
        vocabulary, counts = BatchVocabulary(batch.target, draws), None
        draws = vocabulary.ids[1]
    log_q = noise.log_q(vocabulary.words)
    return DrawnWords(vocabulary.words, vocabulary.ids[0], draws, counts, log_q)


def of_draws(
    batch: TokenBatch,
    words: DrawnWords,
    log_z: LogZ,
    reduction: str,
    *,
    loss: Callable[..., Tensor],
) -> Tensor:
    """A ``loss`` of every target and the draws; see :func:`batch_nce`."""
    weight, bias, log_z = _rows(batch, words.words, log_z)
    if words.counts is not None:
        loss = partial(loss, noise_counts=words.counts)
    inputs = (batch.features, words.target, weight, bias, words.log_q, words.draws)
    return loss(*inputs, log_z=log_z, reduction=reduction, gathered=True)


def _rows(batch: TokenBatch, words: Tensor, log_z: LogZ) -> Tuple[Tensor, Any, float]:
    """Weight, bias and log Z; a learned log Z is taken off the bias, whose gradient it then has.

    In float32 or better: halves of about log Z would make one of several neighbouring biases.
    """
    weight, bias = batch.layer.rows(words)
    if not torch.is_tensor(log_z):
        return weight, bias, log_z
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    return weight, bias.to(at_least_float32(bias)) - log_z, 0.0


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
