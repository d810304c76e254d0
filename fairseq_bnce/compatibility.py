"""What fairseq needs to work beside today's torch and numpy; done when the plugin is imported.

- From 2.6 on ``torch.load`` refuses classes that it was not told of, and fairseq's checkpoints
  hold some: architectures of old keep their options in an argparse.Namespace, and fairseq before
  2022 saved omegaconf objects, up to 0.9 its meters; and there are numpy's arrays in the metrics of
  a translation task. None of these runs code of its own when unpickled, so they go on torch's
  allow-list; its check stays on.
- numpy 2 has no ``numpy.compat``, whose ``long`` fairseq asks for under ``--sample-break-mode eos``
  and in translation.
- omegaconf 2.0, beside fairseq 0.12.2, copies with a part of a configuration all that it is in:
  composing one takes 0.8 s with that, 0.5 s without. 2.1 and later do not; nor does it here.
- fairseq makes its enums of choices at run time, under a name that no module has. pickle could not
  write one, nor a transformer that keeps its options.
- fairseq's commands take ``--bf16`` for a TPU, and end for want of torch_xla on GPUs and CPUs.
"""

import argparse
import collections
import contextlib
import copyreg
import functools
import importlib.util
import pickle
import sys
import types
import typing

import numpy
import omegaconf
import omegaconf.base
import omegaconf.nodes
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass import constants
from fairseq.distributed import utils as distributed
from fairseq.logging import meters

# Whether torch.load checks what it is not asked to check, and knows a class by other names, too.
TORCH_CHECKS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
_CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
_NUMBERS = {code: numpy.dtype(code) for code in _CODES}
_DEEPCOPY = "__deepcopy__"


def allow_fairseq_checkpoints() -> None:
    """Add the plain containers that fairseq checkpoints hold to torch's allow-list."""
    if TORCH_CHECKS:
        named: typing.List[typing.Any]
        named = [(container, name) for name, container in plain_containers().items()]
        torch.serialization.add_safe_globals(named)


def allowing_arrays_of_numbers() -> typing.ContextManager:
    """The same for :func:`arrays_of_numbers`, while a checkpoint is read.

    No longer: under the same names others may put numpy's own on the list, and where one has, these
    are left out.
    """
    if not TORCH_CHECKS or numpy.ndarray in torch.serialization.get_safe_globals():
        return contextlib.nullcontext()
    named: typing.List[typing.Any]
    named = [(container, name) for name, container in arrays_of_numbers().items()]
    # To be filled, and not to be made: without a dot it is no name that a file can have.
    filled = [numpy.ndarray, *map(type, _NUMBERS.values())]
    named += [(kind, f"filled {kind.__name__}") for kind in filled]
    return torch.serialization.safe_globals(named)


def plain_containers() -> typing.Dict[str, typing.Any]:
    """Classes in fairseq checkpoints that run no code of their own when unpickled, by their names.

    The names are those in the files: modules may have had another one when they were written.
    """
    # Metadata is in omegaconf.base from 2.1 on; 2.0 has no torch beside it that would ask.
    metadata = [
        getattr(omegaconf.base, name)
        for name in ("Metadata", "ContainerMetadata")
        if hasattr(omegaconf.base, name)
    ]
    nodes = ("AnyNode", "StringNode", "IntegerNode", "FloatNode", "BooleanNode", "EnumNode")
    containers = [
        argparse.Namespace,
        collections.defaultdict,
        collections.OrderedDict,
        typing.Any,
        dict,
        list,
        set,
        int,
        omegaconf.DictConfig,
        omegaconf.ListConfig,
        *metadata,
        # What stands for a tensor where fairseq sends a checkpoint from rank 0 to the others.
        distributed._TensorPlaceholder,
        *(getattr(omegaconf.nodes, name) for name in nodes),
        *_METERS,
        Dictionary,  # in the state of speech tasks
    ]
    named = {f"{container.__module__}.{_name(container)}": container for container in containers}
    old = {f"fairseq.meters.{meter.__name__}": meter for meter in _METERS}
    return {**named, **old}


def _name(container: typing.Any) -> str:
    """typing.Any is no class before Python 3.11."""
    return getattr(container, "__qualname__", None) or container._name


def arrays_of_numbers() -> typing.Dict[str, typing.Any]:
    """What makes numpy's arrays and numbers, as in the counts of --eval-bleu.

    Not numpy's own functions, but for one: those would take bytes for the addresses of objects, if
    a file says so.
    """
    named = {"numpy.dtype": _number_type, "numpy.ndarray": list, "_codecs.encode": _as_bytes}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        named[f"{module}._reconstruct"] = _empty_array
        named[f"{module}.scalar"] = numpy.float64().__reduce__()[0]
    return named


def _number_type(code: typing.Any, *_: typing.Any) -> typing.Any:
    """One of numpy's own few, which nothing changes."""
    if not isinstance(code, str) or code not in _NUMBERS:
        raise pickle.UnpicklingError(f"Unsupported global: numpy.dtype of {code!r:.20}")
    return _NUMBERS[code]


def _empty_array(*_: typing.Any) -> typing.Any:
    """To be filled; what stands for its class, its shape and its type are then others."""
    return numpy.empty(0, numpy.int8)


def _as_bytes(text: str, _: str) -> bytes:
    """As pickle writes them; other encodings might make much of little."""
    return text.encode("latin-1")


def restore_numpy_long() -> None:
    """Give numpy 2 the one name of ``numpy.compat`` that fairseq uses."""
    if not hasattr(numpy, "compat"):
        compat = types.SimpleNamespace(long=int)
        numpy.compat = compat  # type: ignore[attr-defined]  # which is why it is added


def copy_parts_alone() -> None:
    """Have omegaconf 2.0 copy a part of a configuration as 2.1 does, with the whole as it is."""
    if not omegaconf.__version__.startswith("2.0."):
        return
    for kind in vars(omegaconf).values():
        if isinstance(kind, type) and _DEEPCOPY in vars(kind):
            _leave_parents_alone(kind)


def _leave_parents_alone(kind: type) -> None:
    copied_with_parents = getattr(kind, _DEEPCOPY)

    def copied(
        self: typing.Any, memo: typing.Optional[typing.Dict[int, typing.Any]] = None
    ) -> typing.Any:
        memo = {} if memo is None else memo
        parent = self.__dict__.get("_parent")
        memo.setdefault(id(parent), parent)  # deepcopy takes it for copied already
        return copied_with_parents(self, memo)

    setattr(kind, _DEEPCOPY, copied)


def pickle_choices() -> None:
    """Have pickle write fairseq's enums of choices by their choices."""
    copyreg.pickle(constants.StrEnumMeta, _reduced_choices)


def _reduced_choices(kind: typing.Any) -> typing.Any:
    """A name where a module has the enum by it, else what makes the enum again."""
    name: str = kind.__qualname__
    if getattr(sys.modules.get(kind.__module__), name, None) is kind:
        return name
    return constants.ChoiceEnum, ([choice.value for choice in kind],)


def train_halves_without_a_tpu() -> None:
    """Have fairseq's commands take bfloat16 for a TPU only where ``--tpu`` or torch_xla is."""
    parse = options.parse_args_and_arch
    if importlib.util.find_spec("torch_xla") is not None:
        return

    @functools.wraps(parse)
    def parsed(
        parser: argparse.ArgumentParser,
        input_args: typing.Any = None,
        *others: typing.Any,
        **named: typing.Any,
    ) -> typing.Any:
        found = parse(parser, input_args, *others, **named)
        flags = found[0] if isinstance(found, tuple) else found
        if getattr(flags, "bf16", False) and "--tpu" not in (input_args or sys.argv):
            flags.tpu = False
        return found

    options.parse_args_and_arch = parsed


allow_fairseq_checkpoints()
restore_numpy_long()
copy_parts_alone()
pickle_choices()
train_halves_without_a_tpu()
