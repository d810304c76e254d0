"""Building a model as a checkpoint says, within bounds."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Callable, Dict, Iterator, Mapping

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fairseq_bnce.checkpoints import configurations, contents
from fairseq_bnce.checkpoints.literals import NotALiteral, evaluating_literals
from fairseq_bnce.errors import CheckpointError, InputError, ScoringError, told

# What a model may make besides its parameters: tables of positions, mostly.
_TIMES, _BESIDES = 4, 2**22
_LEAST = 1000  # that a tensor counts for, so that layers without numbers come to an end
_MAKING = {"arange", "empty", "full", "ones", "rand", "randn", "zeros"}
_FILLING = {"fill_", "normal_", "uniform_", "zero_"}  # which is when memory is taken


class _TooLarge(Exception):
    """A configuration that asks for a model of another size than its parameters'."""


class _Bounded(TorchFunctionMode):
    """Counts the elements of tensors that are made in this thread, before they are.

    Some are made by constructors that no mode sees: those are seen where they are filled. Of what
    makes tensors of others, the products and joins that tables of positions are made by count.
    """

    def __init__(self, most: int):
        super().__init__()
        self._most = self._left = most

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _MAKING:
            self._left -= max(_LEAST, _made(args, kwargs, name == "arange"))
        elif name in _RESULTS:
            self._left -= _RESULTS[name](*args, **kwargs)
        filled = args[0].numel() if args and name in _FILLING else 0
        if self._left < 0 or filled > self._most:
            raise _TooLarge(name)
        return func(*args, **kwargs)


@contextlib.contextmanager
def guarded(parameters: Mapping[str, Tensor], configuration: Any, path: str) -> Iterator[None]:
    """In here, build a checkpoint's model and load its parameters.

    Strings are evaluated as literals alone, and what is built has to be of the parameters' size.

    Args:
        parameters: the checkpoint's.
        configuration: the checkpoint's, for the message.
        path: the checkpoint, for the message.

    Raises:
        CheckpointError: for whatever goes wrong in here.
        InputError: as it comes, for data that the model is to be used on.
    """
    most = _BESIDES + _TIMES * _stored(parameters)
    try:
        with literals_alone(configuration, path), _Bounded(most):
            yield
    except (InputError, ScoringError):
        raise
    except _TooLarge:
        raise CheckpointError(
            f"path {path}: required a configuration of a model of the size of its parameters, "
            f"got one of over {most:,} numbers"
        ) from None
    except Exception as error:  # about anything, where a configuration is wrong
        raise no_model(path, error) from None


@contextlib.contextmanager
def literals_alone(configuration: Any, path: str) -> Iterator[None]:
    """In here, strings of a checkpoint's configuration are evaluated as literals alone.

    Raises:
        CheckpointError: naming a field that is none.
    """
    try:
        with evaluating_literals():
            yield
    except NotALiteral as error:
        names = configurations.names_of(configuration, error.text, path)
        raise configurations.not_a_literal(path, names, error) from None


def no_model(path: str, error: Exception) -> CheckpointError:
    """For what fairseq or torch say about a model that can't be built or filled."""
    return CheckpointError(
        f"path {path}: required a model of an architecture that is known here, with all its "
        f"parameters, got: {told(error)}"
    )


def _stored(parameters: Mapping[str, Tensor]) -> int:
    """How many numbers a file holds: names may share them."""
    sizes: Dict[int, int] = {}
    for values in parameters.values():
        storage = contents.storage(values)
        sizes[storage.data_ptr()] = storage.nbytes() // values.element_size()
    return sum(sizes.values())


def _made(args: Any, kwargs: Any, is_range: bool) -> int:
    """How many elements: sizes are the first list of numbers, or else all of them."""
    values = [*args, *(kwargs[name] for name in ("size", "end") if name in kwargs)]
    numbers = next((value for value in values if isinstance(value, (list, tuple))), values)
    sizes = [abs(number) for number in numbers if isinstance(number, int)]
    return max(sizes, default=0) if is_range else math.prod(sizes)


def _product(*factors: Any, **_: Any) -> int:
    """Of each by each, as of positions by frequencies."""
    shapes = [factor.shape for factor in factors if isinstance(factor, Tensor)]
    return math.prod(torch.broadcast_shapes(*shapes))


def _join(tensors: Any, *_: Any, **__: Any) -> int:
    return sum(values.numel() for values in tensors)


_RESULTS: Mapping[str, Callable[..., int]] = {"mul": _product, "cat": _join}
