"""From a checkpoint file to a model, with the dictionary that fits it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch import nn

from fairseq_bnce.checkpoints import building, configurations, contents, dictionaries, reading
from fairseq_bnce.errors import CheckpointError, quoted, told

_TASK = "language_modeling"
# What of the task is for training, or for fairseq-eval-lm.
_NEUTRAL = {
    "stateful": False,
    "unnormalized": False,
    "data": "",  # since fairseq would take a colon in a folder's name for one between folders
    "log_z_shift": "checkpoint",
    "train_subset": None,
    "model_path": None,
    "criterion_name": None,
    "ddp_backend": "none",
    "save_dir": None,
}


class Trained(NamedTuple):
    """A language model and what scoring needs to know of its training.

    Attributes:
        model: in evaluation mode, on the CPU.
        source, target: dictionaries of the words that it reads and predicts.
        state: log_z, mu_z, sigma_z (nats), score_squashing and reduced_partition, as far as they
            were saved; besides, what tells of the dictionary and of how the text was made (see
            :mod:`fairseq_bnce.checkpoints.dictionaries`).
        bos: the id that every block starts with under --add-bos-token, or None.
        longest: how many words the model read at once in training, at most, or None.
    """

    model: nn.Module
    source: Dictionary
    target: Dictionary
    state: Dict[str, Any]
    bos: Optional[int]
    longest: Optional[int] = None


def load(path: str, data: Optional[str] = None) -> Trained:
    """Load a checkpoint of fairseq-train.

    Args:
        path: the file.
        data: folder with the model's dict.txt; by default the checkpoint's own, or the one that it
            was trained on.

    Raises:
        CheckpointError: naming what was required and what came.
    """
    content = reading.read(path)
    content.pop("last_optimizer_state", None)  # of the size of two models, and read by nothing here
    contents.check(content, path)
    task_cfg, model_cfg = _configurations(content, path)
    state = dict(content.get("task_state") or {})
    task = _task_with_dictionary(path, data, task_cfg, content["model"], state)
    task.load_state_dict(state)
    return Trained(
        _model(task, model_cfg, content["model"], path),
        task.source_dictionary,
        task.target_dictionary,
        state,
        task.source_dictionary.bos() if getattr(task.args, "add_bos_token", False) else None,
        contents.longest_context(state, task_cfg),
    )


def is_language_model(task_cfg: Any) -> bool:
    """Whether a model was trained by the task ``language_modeling``."""
    return (getattr(task_cfg, "_name", None) or getattr(task_cfg, "task", None)) == _TASK


def check_positions(model: Any, path: str) -> None:
    """Refuse a model that takes no words.

    Raises:
        CheckpointError: naming how many positions it has.
    """
    longest = model.max_positions()
    last = longest[-1] if isinstance(longest, (tuple, list)) else longest
    if last is not None and not last >= 1:
        raise CheckpointError(
            f"path {path}: positions: required at least 1 (word that the model reads at once), "
            f"got {quoted(last)}"
        )


def _configurations(content: Dict[str, Any], path: str) -> Tuple[Any, Any]:
    """(task, model), of this year's checkpoints or of those with a Namespace of options."""
    check_configurations(content, path)
    with _telling_of(content, path):
        cfg = _of_any_year(content)
        if OmegaConf.is_config(cfg):
            cfg = OmegaConf.to_container(cfg, resolve=True)
        task, model = _as_config(cfg["task"]), _as_config(cfg["model"])
        _check_task(task, path)
        configurations.check_architecture(model, path)
        configurations.close_files(model)
    return task, model


def check_configurations(content: Dict[str, Any], path: str) -> None:
    """Make sure that nothing in a checkpoint's configuration is a program.

    Raises:
        CheckpointError: naming a field that fairseq evaluates and that is no literal.
    """
    with _telling_of(content, path):
        for name in ("args", "cfg"):
            configurations.check(content.get(name), path)


@contextlib.contextmanager
def _telling_of(content: Dict[str, Any], path: str) -> Iterator[None]:
    """A configuration may be wrong in about any way."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"path {path}: {reading.REQUIRED}, got {reading.described(content)} ({told(error)})"
        ) from None


def _of_any_year(content: Dict[str, Any]) -> Any:
    options = content.get("args")
    if options is None:
        return content.get("cfg")
    return checkpoint_utils._upgrade_state_dict(content)["cfg"]


def _as_config(part: Any) -> Any:
    """Architectures of old keep their options in a Namespace, which they take as it is."""
    if isinstance(part, argparse.Namespace):
        return part
    if not isinstance(part, dict):
        raise TypeError(f"a dictionary of options, not {quoted(part)}")
    return OmegaConf.create(part)


def _check_task(cfg: Any, path: str) -> None:
    if not is_language_model(cfg):
        name = getattr(cfg, "_name", None) or getattr(cfg, "task", None)
        raise CheckpointError(
            f"path {path}: required a language model (--task {_TASK}), got a model of task "
            f"{quoted(name)}"
        )


def _task_with_dictionary(
    path: str, data: Optional[str], cfg: Any, parameters: Dict[str, torch.Tensor], state: Any
) -> Any:
    """With the first dictionary that fits the model, of those where one may be."""
    stored = getattr(cfg, "data", None)
    tried = [data] if data is not None else dictionaries.folders(path, state, stored)
    refused: List[CheckpointError] = []
    for folder in tried:
        if os.path.isfile(os.path.join(folder, dictionaries.NAME)):
            try:
                task = _task(cfg, folder, path)
                _check_dictionary(task, parameters, state, folder)
                return task
            except CheckpointError as error:
                refused.append(error)
    if refused:
        raise CheckpointError("; ".join(map(str, refused)))
    raise CheckpointError(
        "data: required a folder with the dict.txt that the model was trained with, got none "
        f"in {' or '.join(tried)}"
    )


def _task(cfg: Any, folder: str, path: str) -> Any:
    dictionary = dictionaries.read(folder)
    try:
        _forget_strangers(cfg)
        for name, value in _NEUTRAL.items():
            setattr(cfg, name, value)
        return tasks.setup_task(cfg, dictionary=dictionary)
    except Exception as error:
        raise CheckpointError(
            f"path {path}: required the configuration of a language model, got: {told(error)}"
        ) from None


def _forget_strangers(cfg: Any) -> None:
    """Take out, in place, options of other versions, as fairseq does of what it loads."""
    if OmegaConf.is_config(cfg):
        known = {field.name for field in dataclasses.fields(tasks.TASK_DATACLASS_REGISTRY[_TASK])}
        for name in set(cfg) - known:
            del cfg[name]


def _check_dictionary(
    task: Any, parameters: Dict[str, torch.Tensor], state: Dict[str, Any], folder: str
) -> None:
    embeddings = parameters.get("decoder.embed_tokens.weight")
    got = len(task.source_dictionary)
    if embeddings is not None and embeddings.dim() and len(embeddings) != got:
        raise CheckpointError(
            f"data {folder}: required the dict.txt that the model was trained with "
            f"({len(embeddings):,} types, fairseq's four counted in), got one of {got:,}"
        )
    dictionaries.check(task.source_dictionary, state, folder)


def _model(task: Any, cfg: Any, parameters: Dict[str, torch.Tensor], path: str) -> nn.Module:
    kinds = contents.kinds(parameters)
    # Where there is a GPU, fairseq's lightconv prints that it lacks an extension of its own: scores
    # are to be alone on standard output.
    with building.guarded(parameters, cfg, path), contextlib.redirect_stdout(sys.stderr):
        model = task.build_model(cfg, from_checkpoint=True)
        model.load_state_dict(parameters, strict=True, model_cfg=cfg)
        check_positions(model, path)
    contents.check_kinds(kinds, model, path)
    return model.eval().requires_grad_(False)
