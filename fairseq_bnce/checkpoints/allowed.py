"""What torch may make when it reads a checkpoint: an allow-list of classes and functions.

torch 2.6 and later load only classes on an allow-list, and fairseq's checkpoints hold a few others:
an argparse.Namespace of options, omegaconf's containers (fairseq before 2022), meters (fairseq up
to 0.9), and numpy's arrays in the metrics of translation. None of them runs code when it is
unpickled.
"""

import argparse
import codecs
import collections
import pickle
import typing

import numpy
import omegaconf
import omegaconf.base
import omegaconf.nodes
import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed
from fairseq.logging import meters

# Whether torch.load(weights_only=True) is safe and its allow-list knows a class by other names.
TORCH_CHECKS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)
_CODES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
_NUMBERS = {code: numpy.dtype(code) for code in _CODES}


def allowing() -> typing.ContextManager:
    """Return a context in which torch 2.6 and later also accept what this module lists.

    The context ends with the reading, because other code may add numpy's own functions under the
    same names. If other code did so before, torch uses those.
    """
    named, before = plain_containers(), torch.serialization.get_safe_globals()
    if numpy.ndarray not in before:
        # torch fills objects of these types but must not make them: no file can have these names.
        filled = {f"filled {kind.__name__}": kind for kind in map(type, _NUMBERS.values())}
        named.update({**arrays_of_numbers(), "filled ndarray": numpy.ndarray, **filled})
    # When a context ends, torch forgets its entries, also those that were allowed before.
    return torch.serialization.safe_globals([pair for pair in pairs(named) if pair not in before])


def pairs(named: typing.Dict[str, object]) -> typing.List[typing.Any]:
    """Return the list that torch takes."""
    return [(value, name) for name, value in named.items()]


def plain_containers() -> typing.Dict[str, object]:
    """Return the classes in fairseq's checkpoints that run no code when unpickled.

    The keys are the names in the files; some modules had another name when a file was written.
    """
    nodes = ("AnyNode", "StringNode", "IntegerNode", "FloatNode", "BooleanNode", "EnumNode")
    metadata = ("Metadata", "ContainerMetadata")  # since omegaconf 2.1
    containers = [
        *(argparse.Namespace, collections.defaultdict, collections.OrderedDict),
        *(dict, list, set, int, omegaconf.DictConfig, omegaconf.ListConfig),
        *(getattr(omegaconf.base, name) for name in metadata if hasattr(omegaconf.base, name)),
        # Marks a tensor when fairseq sends a checkpoint from rank 0 to the other ranks.
        distributed._TensorPlaceholder,
        *(getattr(omegaconf.nodes, name) for name in nodes),
        *_METERS,
        Dictionary,  # speech tasks keep one in their state
    ]
    named = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in containers}
    named["typing.Any"] = typing.Any
    return {**named, **{f"fairseq.meters.{meter.__name__}": meter for meter in _METERS}}


def arrays_of_numbers() -> typing.Dict[str, object]:
    """Return functions that make numpy's arrays and numbers, for example the counts of --eval-bleu.

    Most replace numpy's own functions, which would read bytes of the file as addresses of objects.
    """
    # The class is only an argument of _reconstruct.
    named = {"numpy.dtype": _number_type, "numpy.ndarray": list, "_codecs.encode": codecs.encode}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        named[f"{module}._reconstruct"] = _empty_array
        named[f"{module}.scalar"] = numpy.float64().__reduce__()[0]
    return named


def _number_type(code: object, *_: object) -> object:
    if not isinstance(code, str) or code not in _NUMBERS:
        raise pickle.UnpicklingError(f"Unsupported global: numpy.dtype of {code!r:.20}")
    return _NUMBERS[code]


def _empty_array(*_: object) -> numpy.ndarray:
    # The unpickler fills in shape, type and numbers.
    return numpy.empty(0, numpy.int8)
