"""fairseq's own commands, where they load a checkpoint.

They load by functions of ``fairseq.checkpoint_utils``, in whose place those of this module are put
when the plugin is imported:

- What is loaded is read by :mod:`fairseq_bnce.checkpoints.reading`, so that nothing in it is run,
  whichever torch it is.
- A file that is damaged, as ``checkpoint_last.pt`` is after a kill in the middle of its copying,
  is named with the newest whole checkpoint of its folder.
- A model that the plugin's task is to use (fairseq-eval-lm, fairseq-validate) is loaded as
  :class:`fairseq_bnce.Scorer` loads it, and what is wrong is told. Other tasks' models, and those
  in shards, are loaded as without the plugin, but for strings of their configurations, which are
  evaluated as literals alone.
- Of a checkpoint whose options are all in one Namespace, hydra looks for no file that one of them
  names.
"""

from __future__ import annotations

import argparse
import functools
import os
import pickle
import types
import zipfile
from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq import checkpoint_utils
from fairseq.models.speech_to_text import xm_transformer

from fairseq_bnce.checkpoints import (
    building,
    configurations,
    contents,
    dictionaries,
    loading,
    reading,
)
from fairseq_bnce.errors import CheckpointError, told

_ENDING = ".pt"


def take_fairseqs_place(task_class: type) -> None:
    """Put this module's functions in the place of fairseq's, once.

    Args:
        task_class: the task whose models are loaded with care.
    """
    place: Any = checkpoint_utils
    for module in (place, xm_transformer):  # all of fairseq that reads what fairseq-train wrote
        module.torch = _Torch("torch")
    place._upgrade_state_dict = _without_strangers(place._upgrade_state_dict)
    place.load_checkpoint_to_cpu = _naming_whole_ones(place.load_checkpoint_to_cpu)
    place.load_model_ensemble_and_task = _with_care(place.load_model_ensemble_and_task, task_class)


class _Torch(types.ModuleType):
    """torch, but for what it loads: nothing in a file is run."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, file: Any, *_: Any, **__: Any) -> Any:
        """On the CPU, of a path or an open file."""
        return reading.load(getattr(file, "name", file))


def _without_strangers(upgrade: Any) -> Any:
    @functools.wraps(upgrade)
    def _upgrade_state_dict(state: Any) -> Any:
        options = state.get("args") if isinstance(state, dict) else None
        if isinstance(options, argparse.Namespace):
            configurations.forget_others(options)
        return upgrade(state)

    return _upgrade_state_dict


def _naming_whole_ones(read: Any) -> Any:
    @functools.wraps(read)
    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(path, *args, **kwargs)
        except Exception as error:
            if not os.path.isfile(path):
                raise
            if not reading.is_unsafe(error) and not is_whole(path):
                raise _damaged(path, error) from None
            if isinstance(error, pickle.UnpicklingError):
                raise reading.unsafe(path, error, flag="") from None
            raise

    return load_checkpoint_to_cpu


def is_whole(path: str) -> bool:
    """Whether a file is a checkpoint to its end; all of it is read."""
    try:
        if zipfile.is_zipfile(path):
            reading.check_sums(path)
        else:
            reading.read(path)
    except Exception:  # about anything, of bytes that are no archive after all
        return False
    return True


def newest_whole(folder: str, but: str) -> Optional[str]:
    """The checkpoint of a folder that was written last, of those that are whole.

    Args:
        folder: of checkpoints.
        but: one that is left out.
    """
    with os.scandir(folder) as entries:
        files = [file for file in entries if file.name.endswith(_ENDING) and file.is_file()]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    candidates = (file.path for file in files if not os.path.samefile(file.path, but))
    return next(filter(is_whole, candidates), None)


def _damaged(path: str, error: Exception) -> CheckpointError:
    folder = os.path.dirname(path) or os.curdir
    other = newest_whole(folder, path)
    advice = f"no other checkpoint in {folder} is whole"
    if other is not None:
        advice = (
            f"the newest whole checkpoint there is {other}: go on from it with --restore-file "
            f"{other} (in fairseq-train), or use it in this one's place"
        )
    return CheckpointError(
        f"{path}: required a whole checkpoint, got one that is damaged, as by a kill or a full "
        f"disk while it was written ({told(error)}); {advice}"
    )


def _with_care(load: Any, task_class: type) -> Any:
    @functools.wraps(load)
    def load_model_ensemble_and_task(
        filenames: List[str],
        arg_overrides: Optional[Dict[str, Any]] = None,
        task: Any = None,
        strict: bool = True,
        suffix: str = "",
        num_shards: int = 1,
        state: Any = None,
    ) -> Tuple[List[Any], Any, Any]:
        def load_one(filename: str, task: Any, state: Any) -> Tuple[List[Any], Any, Any]:
            return load([filename], arg_overrides, task, strict, suffix, num_shards, state)

        is_other = task is not None and not isinstance(task, task_class)
        if is_other or num_shards > 1 or state is not None:
            with building.literals_alone(None, os.pathsep.join(filenames)):
                return load(filenames, arg_overrides, task, strict, suffix, num_shards, state)
        models, cfg = [], None
        for filename in filenames:
            path = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
                filename, suffix, shard_idx=0, num_shards=1
            )
            loaded = functools.partial(load_one, filename)
            ones, cfg, task = _load_one(loaded, path, arg_overrides, task, task_class)
            models += ones
        return models, cfg, task

    return load_model_ensemble_and_task


def _load_one(
    load: Any, path: str, overrides: Any, task: Any, task_class: type
) -> Tuple[List[Any], Any, Any]:
    if not os.path.isfile(path):  # fairseq says that there is none, or fetches it
        with building.literals_alone(None, path):
            return load(task, None)
    state = _state(path, overrides)
    is_ours = _is_language_model(state) if task is None else isinstance(task, task_class)
    if not is_ours:
        return _load_other(load, path, state, task)
    _prepare(state, path)
    if task is not None:  # before fairseq tells of a size
        _check_words(state, task)
    kinds = contents.kinds(state["model"])
    with building.guarded(state["model"], state["cfg"], path):
        models, cfg, used = load(task, state)
        if task is None:  # which fairseq has made of the file
            _check_words(state, used)
        for model in models:
            loading.check_positions(model, path)
    for model in models:
        contents.check_kinds(kinds, model, path)
    return models, cfg, used


def _load_other(load: Any, path: str, state: Any, task: Any) -> Tuple[List[Any], Any, Any]:
    """A model of another task: nothing in it is run; all else is that task's own business."""
    loading.check_configurations(state, path)
    with building.literals_alone(state.get("cfg"), path):
        return load(task, state)


def _check_words(state: Dict[str, Any], task: Any) -> None:
    dictionaries.check(task.source_dictionary, state["task_state"], task.args.data)


def _state(path: str, overrides: Any) -> Dict[str, Any]:
    """As fairseq reads it; whatever it stumbles over is told of."""
    try:
        reading.check_file(path)
        _check_size(path)
        return checkpoint_utils.load_checkpoint_to_cpu(path, overrides)
    except (CheckpointError, OSError):
        raise
    except pickle.UnpicklingError as error:
        raise reading.unsafe(path, error) from None
    except zipfile.BadZipFile as error:
        raise _damaged(path, error) from None
    except Exception as error:
        raise building.no_model(path, error) from None


def _check_size(path: str) -> None:
    """Before fairseq has omegaconf copy the configuration."""
    content = reading.read_if_whole(path)
    for name in ("args", "cfg"):
        configurations.check_size(content.get(name), path)


def _is_language_model(state: Dict[str, Any]) -> bool:
    try:
        return loading.is_language_model(state["cfg"]["task"])
    except Exception:  # no configuration, which fairseq says
        return False


def _prepare(state: Dict[str, Any], path: str) -> None:
    """Check what was read, and take out of it what is not to be opened."""
    contents.check(state, path)
    loading.check_configurations(state, path)
    carried = state["task_state"] = dict(state.get("task_state") or {})
    state["args"] = None  # of which fairseq has made cfg
    try:
        configurations.check_architecture(state["cfg"]["model"], path)
        configurations.close_files(state["cfg"]["model"])
        longest = contents.longest_context(carried, state["cfg"]["task"])
    except CheckpointError:
        raise
    except Exception as error:
        raise building.no_model(path, error) from None
    if carried and longest is not None:  # other trainings' models are scored as without the plugin
        carried[contents.LONGEST_CONTEXT] = longest
