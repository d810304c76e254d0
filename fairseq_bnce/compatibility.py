"""What this plugin changes in fairseq and torch; CONTRIBUTING.md says why, and when it can go.

``register()`` applies all of it, and nothing else of the package changes other code for good.
"""

import copyreg
import functools
import importlib.util
import sys
import types
from typing import Any, Callable, Tuple, Union

import numpy
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import language_pair_dataset, token_block_dataset
from fairseq.dataclass import constants
from fairseq.models.speech_to_text import xm_transformer

from fairseq_bnce.checkpoints import allowed, reading, restoring


@functools.lru_cache(maxsize=None)  # once is enough
def apply() -> None:
    """Change fairseq and torch for the rest of the process."""
    if allowed.TORCH_CHECKS:
        torch.serialization.add_safe_globals(allowed.pairs(allowed.plain_containers()))
    if not hasattr(numpy, "compat"):
        long = types.SimpleNamespace(long=int)
        for module in (token_block_dataset, language_pair_dataset):  # all that use it
            module.np = _Changed(numpy, compat=long)
    copyreg.pickle(constants.StrEnumMeta, _reduce_choices)
    if importlib.util.find_spec("torch_xla") is None:
        options.parse_args_and_arch = _parsing_without_a_tpu(options.parse_args_and_arch)
    commands: Any = checkpoint_utils
    for module in (commands, xm_transformer):  # all that read what fairseq-train wrote
        module.torch = _Changed(torch, load=_load)
    load = commands.load_model_ensemble_and_task
    commands.load_model_ensemble_and_task = restoring.safe_loading(load)


class _Changed(types.ModuleType):
    """A module with other members, for one of fairseq's modules that imported it."""

    def __init__(self, module: types.ModuleType, **members: object):
        super().__init__(module.__name__)
        self.__dict__.update(members)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _load(file: Any, *_: object, **__: object) -> Any:
    """Load a path or an open file on the CPU, and run nothing in it."""
    return reading.load(getattr(file, "name", file))


def _reduce_choices(kind: constants.StrEnumMeta) -> Union[str, Tuple]:
    """Let pickle write an enum of choices as the list of its choices."""
    name: str = kind.__qualname__
    if getattr(sys.modules.get(kind.__module__), name, None) is kind:
        return name
    return constants.ChoiceEnum, ([choice.value for choice in kind],)


def _parsing_without_a_tpu(parse: Callable) -> Callable:
    """Let ``--bf16`` mean a TPU only with ``--tpu``."""

    @functools.wraps(parse)
    def parse_args_and_arch(parser: Any, input_args: Any = None, *rest: Any, **named: Any) -> Any:
        result = parse(parser, input_args, *rest, **named)
        args = result[0] if isinstance(result, tuple) else result
        if getattr(args, "bf16", False) and "--tpu" not in (input_args or sys.argv):
            args.tpu = False
        return result

    return parse_args_and_arch
