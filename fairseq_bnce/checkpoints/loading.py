"""Build the model of a checkpoint, with the dictionary that fits the model."""

import argparse
import contextlib
import dataclasses
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from fairseq_bnce import threads
from fairseq_bnce.checkpoints import dictionaries, literals, reading
from fairseq_bnce.errors import CheckpointError, InputError, ScoringError, describe_error
from fairseq_bnce.state import ScoringState

_TASK = "language_modeling"
_STREAMS = "truncated_bptt_lm"  # fairseq's examples/truncated_bptt: the same words and dict.txt
# The task that builds the model, and its options that only training or fairseq-eval-lm use.
_NEUTRAL = dict.fromkeys(("train_subset", "model_path", "criterion_name"))
_NEUTRAL.update(_name=_TASK, stateful=False, unnormalized=False, log_z_shift="checkpoint")
# fairseq would split a folder's name at a colon.
_NEUTRAL.update(ddp_backend="none", save_dir=None, data="")


class Trained(NamedTuple):
    """A language model and what scoring needs to know of its training.

    Attributes:
        model: in evaluation mode, on the CPU.
        source, target: dictionaries of the words that the model reads and predicts.
        state: the task state, as training saved it.
        bos: the id that every block starts with under --add-bos-token, or None.
        longest: the largest number of words that the model read at once in training, or None.
    """

    model: nn.Module
    source: Dictionary
    target: Dictionary
    state: ScoringState
    bos: Optional[int]
    longest: Optional[int] = None


def load(path: str, data: Optional[str] = None) -> Trained:
    """Load a checkpoint of fairseq-train.

    Args:
        path: the file.
        data: the folder with the model's dict.txt; by default the checkpoint's own folder, or the
            folder of the training data.

    Raises:
        CheckpointError: naming what was required and what came.
    """
    threads.use_one_after_a_fork()
    try:
        # A model is built with random numbers: torch's stream stays where it was.
        with literals.only_literals(path), torch.random.fork_rng(devices=()):
            return _load(path, data)
    except (InputError, ScoringError):
        raise
    except Exception as error:  # fairseq, omegaconf and torch raise many kinds
        required = "a model that fairseq can build"
        raise CheckpointError("path", required, describe_error(error), path) from None


def _load(path: str, data: Optional[str]) -> Trained:
    content = reading.read(path)
    content.pop("last_optimizer_state", None)  # twice the size of the model
    reading.check_finite(content, path)
    task_cfg, model_cfg = _configurations(content, path)
    state = ScoringState(content.get("task_state"))
    dictionary = _dictionary(path, data, task_cfg, content["model"], state)
    task = _set_up_task(task_cfg, dictionary)
    task.load_state_dict(state.entries)
    # fairseq's lightconv prints a note on machines with a GPU; standard output is for scores.
    with contextlib.redirect_stdout(sys.stderr):
        model = task.build_model(model_cfg, from_checkpoint=True)
    model.load_state_dict(content["model"], strict=True, model_cfg=model_cfg)
    return Trained(
        model.eval().requires_grad_(False),
        task.source_dictionary,
        task.target_dictionary,
        state,
        task.source_dictionary.bos() if getattr(task.args, "add_bos_token", False) else None,
        reading.longest_context(state, task_cfg),
    )


def is_language_model(task_cfg: object) -> bool:
    """Return whether ``language_modeling`` or fairseq's ``truncated_bptt_lm`` trained the model."""
    return _task_name(task_cfg) in (_TASK, _STREAMS)


def ignore_embedding_file(model_cfg: Any) -> None:
    """Drop the file of initial embeddings, in place: the checkpoint's parameters replace them."""
    if getattr(model_cfg, "decoder_embed_path", None) is not None:
        model_cfg.decoder_embed_path = None


def _configurations(content: reading.Content, path: str) -> Tuple[Any, Any]:
    """Return (task, model); fairseq before 2021 saved one Namespace of all options."""
    if content.get("args") is not None:
        content = checkpoint_utils._upgrade_state_dict(content)
    cfg = content["cfg"]
    if OmegaConf.is_config(cfg):
        cfg = OmegaConf.to_container(cfg, resolve=True)
    # Some architectures keep their options in a Namespace.
    parts = (cfg["task"], cfg["model"])
    task, model = (p if isinstance(p, argparse.Namespace) else OmegaConf.create(p) for p in parts)
    if not is_language_model(task):
        raise CheckpointError("path", f"--task {_TASK}", _task_name(task), path)
    architecture = getattr(model, "_name", None) or getattr(model, "arch", None)
    if architecture not in {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}:
        required = "an architecture that is known here (--user-dir adds others)"
        raise CheckpointError("path", required, architecture, path)
    ignore_embedding_file(model)
    return task, model


def _task_name(task_cfg: object) -> Optional[str]:
    return getattr(task_cfg, "_name", None) or getattr(task_cfg, "task", None)


def _dictionary(
    path: str, data: Optional[str], cfg: object, parameters: Dict[str, Tensor], state: ScoringState
) -> Dictionary:
    """Return the first dictionary that fits the model."""
    stored = getattr(cfg, "data", None)
    folders = [data] if data is not None else dictionaries.folders(path, state, stored)
    rows = parameters.get("decoder.embed_tokens.weight")
    problems: List[str] = []
    for folder in folders:
        try:
            dictionary = Dictionary.load(os.path.join(folder, dictionaries.NAME))
            if rows is None or len(rows) == len(dictionary):
                dictionaries.check(dictionary, state, folder)
                return dictionary
            problem = f"{len(dictionary):,} types and not {len(rows):,}"
        except CheckpointError as error:
            if data is not None:
                raise
            problem = str(error.got)
        except Exception as error:  # there is no dict.txt, or another kind of file
            problem = describe_error(error)
        problems.append(f"{folder}: {problem}")
    required = f"the {dictionaries.NAME} that the model was trained with"
    raise CheckpointError("data", required, "; ".join(problems))


def _set_up_task(cfg: DictConfig, dictionary: Dictionary) -> tasks.FairseqTask:
    if OmegaConf.is_config(cfg):  # other versions have other options
        known = {field.name for field in dataclasses.fields(tasks.TASK_DATACLASS_REGISTRY[_TASK])}
        for name in set(cfg) - known:
            del cfg[name]
    for name, value in _NEUTRAL.items():
        setattr(cfg, name, value)
    return tasks.setup_task(cfg, dictionary=dictionary)
