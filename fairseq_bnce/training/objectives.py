"""What the criteria with noise minimise: a batch, its noise, and one function of losses.

Each objective takes the batch, the source of its noise, log Z (a 0-d tensor if it is learned) and a
reduction, "sum" or "none", and returns nats. The batch's words are made unique and their rows
gathered once (BatchVocabulary), and the loss sees no other row.
"""

from functools import partial
from typing import Any, Callable, List, Tuple, Union

import torch
from torch import Tensor

from fairseq_bnce import losses, ranks
from fairseq_bnce.losses.gathering import multiplicities
from fairseq_bnce.losses.precision import at_least_float32
from fairseq_bnce.projection.batch import BatchVocabulary, TokenBatch
from fairseq_bnce.training.noise_source import NoiseSource

_DEFAULT_DRAWS = 100
LogZ = Union[float, Tensor]


def batch_nce(
    batch: TokenBatch,
    noise: NoiseSource,
    log_z: LogZ,
    reduction: str,
    *,
    group: str = "batch",
    gather_noise: bool = False,
    loss: Callable[..., Tensor] = losses.batch_nce_loss,
    own: int = 0,
) -> Tensor:
    """Over groups of targets that are each other's noise, the source's draws added to each.

    Args:
        batch, noise, log_z, reduction: see the module.
        group: "batch", "time", or how many tokens, drawn at random, make a group.
        gather_noise: whether the other ranks' targets are noise too.
        loss: of one group.
        own: 1 where a target is one of the words that it is ranked among, and not noise to itself.
    """
    groups = _groups(batch, group)
    elsewhere = _targets_elsewhere(batch) if gather_noise else batch.target[:0]
    # A lone target has no company to serve as its noise: one draw makes up for it.
    counts = [max(noise.samples or 0, 2 - len(tokens) - len(elsewhere)) for tokens in groups]
    draws = [noise.draw(batch.target.device, count) for count in counts]
    vocabulary = BatchVocabulary(batch.layer, batch.target, elsewhere, *draws)
    target, foreign, *draws = vocabulary.ids
    weight, bias, log_z = _rows(vocabulary, log_z)
    zeros = torch.zeros_like(vocabulary.words, dtype=torch.float32)
    occurrences = multiplicities(zeros, target, foreign)
    log_p = noise.log_p(vocabulary.words, occurrences, len(target) + len(foreign))
    parts = []
    for features, words, drawn in zip(
        _split(batch.features, groups), _split(target, groups), draws
    ):
        in_batch = len(words) - 1 + own + len(foreign)
        log_q = noise.mixture_log_q(vocabulary.words, log_p, in_batch, len(drawn))
        extra = torch.cat([foreign, drawn])
        options = {"log_z": log_z, "reduction": reduction, "gathered": len(groups) == 1}
        parts.append(loss(features, words, weight, bias, log_q, noise_ids=extra, **options))
    if len(parts) == 1:
        return parts[0]
    if reduction == "sum":
        return torch.stack(parts).sum()
    return torch.cat(parts)[torch.cat(groups).argsort()]


def of_draws(
    batch: TokenBatch,
    noise: NoiseSource,
    log_z: LogZ,
    reduction: str,
    *,
    loss: Callable[..., Tensor],
    are_fresh: bool = False,
    are_merged: bool = False,
) -> Tensor:
    """A ``loss`` of every target and draws, which are the batch's or, if fresh, the token's own.

    Equal draws are merged for a loss that takes ``noise_counts``: it scores each word once.
    """
    count = _DEFAULT_DRAWS if noise.samples is None else noise.samples
    draws = noise.draw(batch.target.device, *([len(batch)] if are_fresh else []), count)
    if are_merged:
        vocabulary = BatchVocabulary(batch.layer, batch.target, draws=draws)
        draws = vocabulary.draws
        loss = partial(loss, noise_counts=vocabulary.draw_counts)
    else:
        vocabulary = BatchVocabulary(batch.layer, batch.target, draws)
        draws = vocabulary.ids[1]
    weight, bias, log_z = _rows(vocabulary, log_z)
    inputs = (batch.features, vocabulary.ids[0], weight, bias, noise.log_q(vocabulary.words))
    return loss(*inputs, draws, log_z=log_z, reduction=reduction, gathered=True)


def _rows(vocabulary: Any, log_z: LogZ) -> Tuple[Tensor, Any, float]:
    """Weight, bias and log Z; a learned log Z is taken off the bias, whose gradient it then has.

    In float32 or better: halves of about log Z would make one of several neighbouring biases.
    """
    weight, bias = vocabulary.weight, vocabulary.bias
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
