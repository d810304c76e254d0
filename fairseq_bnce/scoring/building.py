"""Building a model as a checkpoint says, within bounds."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Iterator, Mapping

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_bnce.scoring import configurations
from fairseq_bnce.scoring.errors import CheckpointError, ScoringError
from fairseq_bnce.scoring.literals import NotALiteral, evaluating_literals
from fairseq_bnce.token_counts import DataError

# What a model may make besides its parameters: tables of positions, mostly.
_TIMES, _BESIDES = 4, 2**22
_MAKING = ("arange", "empty", "full", "new_", "ones", "rand", "zeros")
_TOLD = 500  # characters of what somebody else's error says


class _TooLarge(Exception):
    """A configuration that asks for a model of another size than its parameters'."""


class _Bounded(TorchDispatchMode):
    """Counts the elements of the tensors that are made anew in this thread, before they are."""

    def __init__(self, most: int):
        super().__init__()
        self._left = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__
        if name.startswith(_MAKING):
            self._left -= _elements(args, name.startswith("arange"))
            if self._left < 0:
                raise _TooLarge(name)
        return func(*args, **(kwargs or {}))


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
        DataError: as it comes, for data that the model is to be used on.
    """
    most = _BESIDES + _TIMES * sum(values.numel() for values in parameters.values())
    try:
        with evaluating_literals(), _Bounded(most):
            yield
    except (DataError, ScoringError):
        raise
    except NotALiteral as error:
        names = configurations.names_of(configuration, error.text)
        raise configurations.not_a_literal(path, names, error) from None
    except _TooLarge:
        raise CheckpointError(
            f"--path {path}: required a configuration of a model of the size of its parameters, "
            f"got one of over {most:,} numbers"
        ) from None
    except Exception as error:  # about anything, where a configuration is wrong
        raise no_model(path, error) from None


def no_model(path: str, error: Exception) -> CheckpointError:
    """For what fairseq or torch say about a model that can't be built or filled."""
    return CheckpointError(
        f"--path {path}: required a model of an architecture that is known here, with all its "
        f"parameters, got: {told(error)}"
    )


def told(error: Exception) -> str:
    """An error in one line, and not the thousands of names that some come with."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _TOLD else f"{text[: _TOLD - 3]}..."


def _elements(args: Any, is_range: bool) -> int:
    if is_range:
        return max((abs(arg) for arg in args if isinstance(arg, int)), default=0)
    sizes = (arg for arg in args if isinstance(arg, (list, tuple)))
    return math.prod(size for size in next(sizes, ()) if isinstance(size, int))
