"""What this plugin changes in fairseq and torch; CONTRIBUTING.md says why, and when it can go.

``register()`` applies all of it, and nothing else of the package changes other code for good.
"""

import contextlib
import copyreg
import functools
import importlib.util
import sys
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

import numpy
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary, language_pair_dataset, token_block_dataset
from fairseq.dataclass import constants
from fairseq.file_io import PathManager
from fairseq.models.speech_to_text import xm_transformer

from fairseq_bnce.checkpoints import allowed, dictionaries, literals, loading, reading
from fairseq_bnce.state import ScoringState


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
    commands.load_model_ensemble_and_task = _safe_loading(commands.load_model_ensemble_and_task)


class _Changed(types.ModuleType):
    """A module with other members, for one of fairseq's modules that imported it."""

    def __init__(self, module: types.ModuleType, **members: object):
        super().__init__(module.__name__)
        self.__dict__.update(members)
        self._module = module

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


def _load(file: Any, *_: object, **__: object) -> object:
    """Load a path or an open file on the CPU, and run nothing in it."""
    return reading.read(getattr(file, "name", file), is_mapped=False)


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


# ---------------------------------------------------------------- loading by fairseq's commands


def _safe_loading(load: Callable) -> Callable:
    """Return a replacement of ``load``, fairseq's ``load_model_ensemble_and_task``.

    Each text that fairseq evaluates while it builds a model must be a literal. The parameters of a
    language model must be finite. ``fairseq-generate --lm-path`` also takes a model whose words are
    those of the target language. Models of other tasks than the plugin's are loaded without a
    check of their parameters.
    """
    targets: Dict[str, Dictionary] = {}  # the last translation's: its --lm-path is loaded next

    @functools.wraps(load)
    def load_model_ensemble_and_task(
        filenames: List[str],
        arg_overrides: Optional[Dict[str, object]] = None,
        task: Optional[tasks.FairseqTask] = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: Optional[reading.Content] = None,
    ) -> Tuple:
        if task is not None and not _is_ours(task):
            targets.clear()
            targets.update(_target_words(task))
        models, cfg = [], None
        for filename in filenames:
            path = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
                filename, suffix, shard_idx=0, num_shards=num_shards
            )
            with literals.only_literals(path):
                content = state
                if content is None and num_shards == 1 and PathManager.isfile(path):
                    content = checkpoint_utils.load_checkpoint_to_cpu(path, arg_overrides)
                    kind = content["cfg"]["task"]
                    if _is_ours(task) or task is None and loading.is_language_model(kind):
                        _prepare(content, path)
                        task = task or _task_for_translation(content, targets)
                found, cfg, task = load(
                    [filename], arg_overrides, task, strict, suffix, num_shards, content
                )
            models += found
        return models, cfg, task

    return load_model_ensemble_and_task


def _is_ours(task: Optional[tasks.FairseqTask]) -> bool:
    return isinstance(task, tasks.TASK_REGISTRY["language_modeling"])


def _target_words(task: tasks.FairseqTask) -> Dict[str, Dictionary]:
    """Return a task's target dictionary by its data, or nothing where the task has none."""
    with contextlib.suppress(AttributeError, NotImplementedError):
        return {(getattr(task, "args", None) or task.cfg).data: task.target_dictionary}
    return {}


def _task_for_translation(content: reading.Content, targets: Mapping[str, Dictionary]) -> object:
    """Set up the model's task with the words of a translation's target.

    fairseq-generate adds the model's probabilities to those of the target's words by id.

    Args:
        targets: the translation's data and target dictionary.

    Returns:
        None for other data, whose dict.txt fairseq loads.

    Raises:
        CheckpointError: for a model that does not have the target's words.
    """
    cfg, state = content["cfg"]["task"], ScoringState(content.get("task_state"))
    if cfg.data in targets and state.dictionary_sha256 is not None:
        dictionaries.check(targets[cfg.data], state, f"{cfg.data}, target language")
        return tasks.setup_task(cfg, from_checkpoint=True, dictionary=targets[cfg.data])
    return None


def _prepare(content: reading.Content, path: str) -> None:
    reading.check_finite(content, path)
    content["args"] = None  # fairseq would read the configuration from here again
    loading.ignore_embedding_file(content["cfg"]["model"])
    state = ScoringState(content.get("task_state"))
    longest = reading.longest_context(state, content["cfg"]["task"])
    if state.entries and longest:  # models of other trainings are scored as fairseq does
        state.longest_context = longest
