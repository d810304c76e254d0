"""The base of this package's autograd functions, whose backward passes are written by hand.

Such a backward pass is arithmetic that autograd does not follow and autocast must not touch: both
are seen to here, once for all functions.
"""

import functools
from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor


class FirstOrderFunction(torch.autograd.Function):
    """An autograd function that is differentiable once.

    Its ``backward`` runs without autocast, whoever calls it, since loss.backward() may be called
    under autocast; and its gradients can't be differentiated again: that is a RuntimeError, whether
    or not the incoming gradient itself has a graph (``once_differentiable`` of torch takes the
    gradients for constants where it has none, as under ``loss.sum()``).
    """

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        guarded = _first_order(cls.backward, cls.__name__.strip("_"))
        # torch declares its own, which is there to be replaced, with other arguments.
        cls.backward = staticmethod(guarded)  # type: ignore[method-assign]


def _first_order(backward: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(backward)
    def guarded(ctx: Any, grad: Tensor) -> Any:
        with torch.no_grad(), torch.autocast(device_type=grad.device.type, enabled=False):
            gradients = backward(ctx, grad)
        if not torch.is_grad_enabled():  # it is under create_graph=True
            return gradients
        return tuple(None if one is None else _refuse_second(one, name) for one in gradients)

    return guarded


def _refuse_second(gradient: Tensor, name: str) -> Tensor:
    return _Refusal.apply(gradient.detach().requires_grad_(), name)


class _Refusal(torch.autograd.Function):
    """The identity, whose derivative is an error."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, name: str) -> Tensor:
        ctx.name = name
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None]:
        raise RuntimeError(f"{ctx.name}: required a first derivative, got a second one")


def learns(*tensors: Optional[Tensor]) -> bool:
    """Whether there will be a backward pass, which an autograd function itself can't see."""
    needed = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return needed and torch.is_grad_enabled()
