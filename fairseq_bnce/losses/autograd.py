"""The base of this package's autograd functions, whose backward passes are written by hand.

Autograd does not follow such a backward pass, and autocast must not touch it. The base class takes
care of both for all functions.
"""

import functools
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor


class FirstOrderFunction(torch.autograd.Function):
    """An autograd function that is differentiable once.

    ``backward`` runs without autocast, because loss.backward() may be called under autocast. A
    second derivative raises RuntimeError. torch's ``once_differentiable`` does so only if the
    incoming gradient has a graph, which it has not under ``loss.sum()``.
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        guarded = _first_order(cls.backward, cls.__name__.strip("_"))
        # A subclass's backward takes other arguments than the one that torch declares.
        cls.backward = staticmethod(guarded)  # type: ignore[method-assign]


def _first_order(backward: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(backward)
    def guarded(ctx: Any, grad: Tensor) -> Any:
        # Read before the backward pass: the inputs that the gradients depend on.
        inputs = [t for t in (grad, *ctx.saved_tensors) if t is not None and t.requires_grad]
        with torch.no_grad(), torch.autocast(device_type=grad.device.type, enabled=False):
            gradients = backward(ctx, grad)
        if not torch.is_grad_enabled():  # create_graph=True enables it
            return gradients
        return tuple(None if g is None else _Refusal.apply(name, g, *inputs) for g in gradients)

    return guarded


class _Refusal(torch.autograd.Function):
    """The identity of a gradient; raises where the gradient is differentiated by its inputs."""

    @staticmethod
    def forward(ctx: Any, name: str, gradient: Tensor, *inputs: Tensor) -> Tensor:
        ctx.name = name
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        raise RuntimeError(f"{ctx.name}: required a first derivative, got a second one")


def learns(*tensors: Optional[Tensor]) -> bool:
    """Whether there will be a backward pass, which an autograd function itself can't see."""
    needed = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return needed and torch.is_grad_enabled()
