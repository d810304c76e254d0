"""Where tests run that are to hold on a GPU: there, or on a device that stands in for one.

Tensors of the stand-in say that they are on torch's device "meta", hold their numbers on the CPU,
and refuse to meet tensors of the CPU where a GPU's would: the mistakes that no CPU shows.
"""

import contextlib
from typing import Any, Dict, Iterator
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "meta"
# fairseq's commands ask to be told where there is none.
FLAGS = [] if HAS_GPU else ["--cpu"]

# Operators that take tensors of both: copies, and indices, which may be the CPU's.
_COPIES = {"_to_copy", "copy_"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}


@contextlib.contextmanager
def there() -> Iterator[None]:
    """With the stand-in at work if there is no GPU."""
    if HAS_GPU:
        yield
        return
    autocast, generator = torch.autocast, torch.Generator  # which have no such device
    with contextlib.ExitStack() as stack:
        for name, stand_in in (
            ("autocast", lambda device_type, **options: autocast("cpu", **options)),
            ("Generator", lambda device="cpu": generator()),
        ):
            stack.enter_context(mock.patch.object(torch, name, stand_in))
        stack.enter_context(_Functions())
        stack.enter_context(_Operators())
        yield


def _dispatched(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return _call(func, args, kwargs or {})


class Elsewhere(torch.Tensor):
    """Not on the CPU, to all appearances."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Elsewhere":
        same = {"dtype": held.dtype, "layout": held.layout, "requires_grad": held.requires_grad}
        same.update(strides=held.stride(), storage_offset=held.storage_offset())
        return torch.Tensor._make_wrapper_subclass(cls, held.size(), device=DEVICE, **same)

    def __init__(self, held: torch.Tensor):
        self.held = held

    def __repr__(self) -> str:
        return f"Elsewhere({self.held!r})"

    __torch_dispatch__ = classmethod(_dispatched)

    def tolist(self) -> Any:
        return self.held.tolist()


class _Operators(TorchDispatchMode):
    """Those that make tensors of nothing, too."""

    __torch_dispatch__ = _dispatched


class _Functions(TorchFunctionMode):
    """What makes tensors of numbers, out of the sight of operators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if func in (torch.tensor, torch.as_tensor) else None
        if func is torch.Tensor.new_tensor and isinstance(args[0], Elsewhere):
            kwargs.setdefault("dtype", args[0].dtype)
            func, args, device = torch.tensor, args[1:], DEVICE
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


def _call(func: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """An operator, on what its tensors hold."""
    name = func.overloadpacket.__name__
    wrappers = {}  # what is changed in place stays the tensor that it is

    def held(x: Any) -> Any:
        if isinstance(x, Elsewhere):
            wrappers[id(x.held)] = x
            return x.held
        return torch.device("cpu") if isinstance(x, torch.device) else x

    is_there = _is_result_there(name, args, kwargs)
    found = func(*tree_map(held, args), **tree_map(held, kwargs))

    def wrapped(x: Any) -> Any:
        if not is_there or not isinstance(x, torch.Tensor):
            return x
        return wrappers[id(x)] if id(x) in wrappers else Elsewhere(x)

    return tree_map(wrapped, found)


def _is_result_there(name: str, args: Any, kwargs: Dict[str, Any]) -> bool:
    """Raise RuntimeError where a GPU would: numbers of no dimension alone may be the CPU's."""
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
    are_there = [isinstance(x, Elsewhere) for x in tensors if x.dim() or isinstance(x, Elsewhere)]
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type == DEVICE
    if name in _COPIES:
        return isinstance(args[0], Elsewhere)
    may_differ = name in _INDEXING and isinstance(args[0], Elsewhere)
    if any(are_there) and not all(are_there) and not may_differ:
        raise RuntimeError(f"{name}: required tensors of one device, got some of the CPU")
    return any(are_there)
