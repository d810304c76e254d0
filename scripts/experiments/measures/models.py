"""Measures of a trained model: its scores and its normaliser."""

import logging
import logging.handlers
import sys
from typing import Any, Dict, Iterator, List, Tuple

import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.language_modeling import LanguageModelingTask

from .. import logs


def score(arguments: List[str], exact_only: bool) -> Dict[str, Any]:
    """Return what fairseq-eval-lm prints for valid and test: exact, raw and shifted scores.

    Its own entry point is called once for each of the six, in this one process: importing torch
    and fairseq takes longer than many an evaluation. The shift is mu_z of the validation data.

    Args:
        arguments: fairseq-eval-lm's, the split left out.
        exact_only: for a model whose raw scores are no log-probabilities.

    Returns:
        ``normaliser`` (empty for an adaptive softmax, which has none), and ``score[split][way]``.
    """
    found = normaliser([*arguments, "--gen-subset", "valid"])
    ways: Dict[str, List[str]] = {"exact": []}
    if not exact_only:
        ways["raw"] = ["--unnormalized", "--log-z-shift=none"]
        ways["shifted"] = ["--unnormalized", f"--log-z-shift={found['mu_z']!r}"]
    score = {
        split: {way: _score([*arguments, "--gen-subset", split, *ways[way]]) for way in ways}
        for split in ("valid", "test")
    }
    return {"normaliser": found, "score": score}


def normaliser(arguments: List[str]) -> Dict[str, Any]:
    """Measure log Z_c - log Z over the contexts that eval-lm would score, nats.

    Works for any plain model: a cross_entropy checkpoint carries no log Z, which is then 0.

    Args:
        arguments: fairseq-eval-lm's; same data and blocks, so the same contexts.

    Returns:
        mean and standard deviation; Pearson's correlation of log Z_c with the entropy of p(. | c).
        Nothing for an adaptive softmax, each of whose clusters has a normaliser.
    """
    parser = options.get_eval_lm_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    cfg.task.tokens_per_sample -= max(cfg.eval_lm.context_window, 0)  # as eval-lm does
    task = tasks.setup_task(cfg.task)
    path = [cfg.common_eval.path]
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(path, task=task)
    if getattr(model.decoder, "adaptive_softmax", None) is not None:
        return {}
    log_z = task.state.state_dict.get("log_z", 0.0)
    batches = _batches(cfg, task, model)
    if torch.cuda.is_available() and not cfg.common.cpu:
        model, batches = model.cuda(), map(utils.move_to_cuda, batches)
    parts = list(_partitions(model.eval(), task, batches))
    partitions, entropies = (torch.cat(values).double().cpu() for values in zip(*parts))
    deviations = partitions - log_z
    if not deviations.isfinite().all():
        raise ValueError("log Z_c: required finite values for all contexts, got others")
    return {
        "log_z": log_z,
        "mu_z": deviations.mean().item(),
        "sigma_z": deviations.std(unbiased=False).item(),
        "contexts": deviations.numel(),
        "entropy": entropies.mean().item(),
        "entropy_correlation": torch.corrcoef(torch.stack([entropies, deviations]))[0, 1].item(),
    }


def _batches(cfg: Any, task: Any, model: Any) -> Iterator[Dict[str, Any]]:
    given, positions = cfg.dataset, utils.resolve_max_positions(model.max_positions())
    task.load_dataset(given.gen_subset)
    dataset, window = task.dataset(given.gen_subset), cfg.eval_lm.context_window
    limits = {"max_tokens": given.max_tokens or 36000, "batch_size": given.batch_size}
    rest = {"max_positions": positions, "num_workers": given.num_workers, "context_window": window}
    # fairseq's own, not the plugin's, which would make a scorer of the model.
    return LanguageModelingTask.eval_lm_dataloader(task, dataset, **limits, **rest)


@torch.no_grad()
def _partitions(model: Any, task: Any, batches: Any) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    from fairseq_bnce.criterions.base import TokenBatch

    for sample in batches:
        if sample:
            batch = TokenBatch.from_sample(model, sample, task.target_dictionary.pad())
            found = batch.layer.kind.predictive_statistics(batch.features)
            yield found.log_partition, found.entropy


def _score(arguments: List[str]) -> Dict[str, float]:
    """Return what fairseq-eval-lm measures."""
    from fairseq_cli import eval_lm

    print("fairseq-eval-lm", *arguments, flush=True)
    messages = logging.handlers.BufferingHandler(10**6)
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(messages)
    sys.argv = ["fairseq-eval-lm", *arguments]
    eval_lm.cli_main()
    root.removeHandler(messages)
    return logs.read_scoring(record.getMessage() for record in messages.buffer)
