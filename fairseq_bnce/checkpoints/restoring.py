"""Safe loading for fairseq's own commands.

fairseq's commands load models by ``fairseq.checkpoint_utils.load_model_ensemble_and_task``, which
``register()`` replaces (compatibility.py):

- Each text that fairseq evaluates while it builds a model must be a literal.
- The parameters of a language model must be finite.
- ``fairseq-generate --lm-path`` also takes a model whose words are those of the target language.
"""

import contextlib
import functools
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from fairseq import checkpoint_utils, tasks
from fairseq.data import Dictionary
from fairseq.file_io import PathManager

from fairseq_bnce.checkpoints import dictionaries, literals, loading, reading
from fairseq_bnce.state import ScoringState


def safe_loading(load: Callable) -> Callable:
    """Return a replacement of ``load``, fairseq's ``load_model_ensemble_and_task``.

    The models of other tasks than the plugin's are loaded without a check of their parameters.
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
                    if _is_language_model(content, task):
                        _prepare(content, path)
                        task = task or _task_for_translation(content, targets)
                found, cfg, task = load(
                    [filename], arg_overrides, task, strict, suffix, num_shards, content
                )
            models += found
        return models, cfg, task

    return load_model_ensemble_and_task


def _is_ours(task: tasks.FairseqTask) -> bool:
    return isinstance(task, tasks.TASK_REGISTRY["language_modeling"])


def _is_language_model(content: reading.Content, task: Optional[tasks.FairseqTask]) -> bool:
    if task is not None:
        return _is_ours(task)
    return loading.is_language_model(content["cfg"]["task"])


def _target_words(task: tasks.FairseqTask) -> Dict[str, Dictionary]:
    """Return a task's target dictionary by its data, or nothing where the task has none."""
    with contextlib.suppress(AttributeError, NotImplementedError):
        return {(getattr(task, "args", None) or task.cfg).data: task.target_dictionary}
    return {}


def _task_for_translation(content: reading.Content, targets: Mapping[str, Dictionary]) -> Any:
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
