"""The table of losses that every common test runs through, and random problems for it."""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

Problem = Dict[str, Optional[Tensor]]

PARAMETERS = ("features", "weight", "bias")


class Row(NamedTuple):
    """A function of fairseq_bnce.losses and of reference.py, the tensors it takes and the rest."""

    function: str
    tensors: Tuple[str, ...]
    options: Dict[str, Any] = {}
    takes_log_z: bool = True
    reduces: bool = True


_SCORES = ("features", "target", "weight", "bias")
_BATCH = _SCORES + ("log_q",)
_DRAWS = _BATCH + ("noise_ids",)

ROWS = {
    "bnce": Row("batch_nce_loss", _BATCH),
    "bnce_noise": Row("batch_nce_loss", _DRAWS),
    "shared_nce": Row("shared_nce_loss", _DRAWS),
    "nce": Row("nce_loss", _BATCH + ("fresh_ids",)),
    "bce_is": Row("sampled_bce_loss", _DRAWS, {"estimator": "is"}),
    "bce_cps": Row("sampled_bce_loss", _DRAWS, {"estimator": "cps", "vocab_size": 9}),
    "bce_complementary": Row("sampled_bce_loss", _DRAWS),
    "bce_snis": Row("sampled_bce_loss", _DRAWS, {"estimator": "snis"}),
    "sampled_softmax": Row("sampled_softmax_loss", _DRAWS),
    "ranking": Row("ranking_nce_loss", _BATCH, {"alpha": 0.3}),
    "ranking_noise": Row("ranking_nce_loss", _DRAWS),
    "partition_penalty": Row("partition_penalty", PARAMETERS, {"alpha": 10.0}),
    "log_partition": Row("log_partition", PARAMETERS, takes_log_z=False, reduces=False),
    "target_scores": Row("target_scores", _SCORES, takes_log_z=False, reduces=False),
}
SAMPLED_BCE = ("bce_is", "bce_cps", "bce_complementary", "bce_snis")
SHARED = ("bnce", "bnce_noise", "shared_nce", "ranking", "ranking_noise") + SAMPLED_BCE
TARGETED = tuple(name for name, row in ROWS.items() if "target" in row.tensors)


def make_problem(count: int, *, repeated=True, bias=True, draws=6, scale=1.0) -> Problem:
    """A random problem of `count` tokens in float32.

    repeated: fewer words than tokens (the first and the last target are the same); otherwise all
    targets differ. scale multiplies the scores. Some draws are some token's own target.
    """
    rng = torch.Generator().manual_seed(1)
    vocab, dim = (max(7, count // 3) if repeated else count + 7), 8
    q = 1 / torch.arange(1, vocab + 1, dtype=torch.float64)
    q /= q.sum()
    draw = torch.multinomial(q, count * (draws + 1) + draws, replacement=True, generator=rng)
    target, shared, fresh = draw.split([count, draws, count * draws])
    target = target.clone() if repeated else torch.randperm(vocab, generator=rng)[:count]
    fresh = fresh.reshape(count, draws).clone()
    if count:
        target[-1] = target[0] if repeated else target[-1]
        shared[0] = fresh[0, 1] = target[0]
    noise = 0.3 * torch.randn(vocab, generator=rng)
    return {
        "features": scale * torch.randn(count, dim, generator=rng),
        "target": target,
        "weight": torch.randn(vocab, dim, generator=rng) / math.sqrt(dim),
        "bias": q.log().float() + noise if bias else None,
        "log_q": q.log().float(),
        "noise_ids": shared,
        "fresh_ids": fresh,
    }


def with_gradients(problem: Problem, dtype: torch.dtype, names=PARAMETERS) -> Problem:
    """A copy whose parameters have the given type and, if named, require gradients."""
    copy = dict(problem)
    for name in PARAMETERS:
        if problem[name] is not None:
            copy[name] = problem[name].detach().to(dtype).requires_grad_(name in names)
    return copy


def call(module, name: str, problem: Problem, **options):
    """Calls the row's function of the module by keywords; drops options that it does not take."""
    row = ROWS[name]
    if not row.takes_log_z:
        options.pop("log_z", None)
    if not row.reduces:
        options.pop("reduction", None)
    tensors = {key: problem[key] for key in row.tensors}
    if "fresh_ids" in tensors:
        tensors["noise_ids"] = tensors.pop("fresh_ids")
    return getattr(module, row.function)(**tensors, **{**row.options, **options})


def gradients(loss: Tensor, problem: Problem) -> Dict[str, Tensor]:
    """Gradients of the loss with respect to the parameters that require one; unused: zero."""
    given = {name: problem[name] for name in PARAMETERS if problem[name] is not None}
    leaves = {name: tensor for name, tensor in given.items() if tensor.requires_grad}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    zeros = map(torch.zeros_like, leaves.values())
    return {name: zero if g is None else g for name, zero, g in zip(leaves, zeros, found)}


def assert_near(got: Tensor, want: Tensor, tolerance: float, scale=None) -> None:
    """The greatest difference is at most tolerance * scale (default: the greatest |want|)."""
    assert got.shape == want.shape
    assert bool(torch.isfinite(want).all())
    if want.numel():
        limit = tolerance * (want.detach().double().abs().max() if scale is None else scale)
        difference = (got.double() - want.double()).detach().abs().max()
        assert difference <= limit, f"off by {difference:.2e}, allowed {limit:.2e}"
