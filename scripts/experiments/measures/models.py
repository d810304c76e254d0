"""Measures of a trained model: how it scores, and how it completes sentences."""

from __future__ import annotations

import argparse
import logging
import sys
from typing import Any, Dict, Iterator, List, Tuple

import numpy
import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks.language_modeling import LanguageModelingTask

BATCH = 20  # sentences: an adaptive softmax has a number for each of their tokens and types
BINS = 60  # of the histogram, each way


def score(arguments: List[str]) -> Dict[str, Any]:
    """What fairseq-eval-lm prints for valid and test: exact, with raw scores, with shifted ones.

    Its own entry point is called once for each of the six, in this one process: importing torch
    and fairseq takes longer than many an evaluation. The shift is mu_z of the validation data.

    Args:
        arguments: fairseq-eval-lm's, the split left out; after ``--exact-only``, for a model whose
            raw scores are no log-probabilities.

    Returns:
        ``normaliser`` (empty for an adaptive softmax, which has none), and the messages as
        ``printed[split][way]``.
    """
    parser = argparse.ArgumentParser(prog="measure.py score", allow_abbrev=False)
    parser.add_argument("--exact-only", action="store_true")
    options, arguments = parser.parse_known_args(arguments)
    found = normaliser([*arguments, "--gen-subset", "valid"])
    ways = {"exact": []} if options.exact_only else _ways(found["mu_z"])
    printed = {
        split: {way: _messages([*arguments, "--gen-subset", split, *ways[way]]) for way in ways}
        for split in ("valid", "test")
    }
    return {"normaliser": found, "printed": printed}


def _ways(shift: float) -> Dict[str, List[str]]:
    return {
        "exact": [],
        "raw": ["--unnormalized", "--log-z-shift=none"],
        "shifted": ["--unnormalized", f"--log-z-shift={shift!r}"],
    }


def normaliser(arguments: List[str]) -> Dict[str, Any]:
    """log Z_c - log Z over the contexts that eval-lm would score, nats.

    Works for any plain model: a cross_entropy checkpoint carries no log Z, which is then 0.

    Args:
        arguments: fairseq-eval-lm's; same data and blocks, so the same contexts.

    Returns:
        mean and standard deviation; Pearson's correlation of log Z_c with the entropy of p(. | c),
        and the counts of both in a histogram (figure 1 of Goldberger & Melamud 2018). Nothing for
        an adaptive softmax, each of whose clusters has a normaliser.
    """
    parser = options.get_eval_lm_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    cfg.task.tokens_per_sample -= max(cfg.eval_lm.context_window, 0)  # as eval-lm does
    task = tasks.setup_task(cfg.task)
    path = [cfg.common_eval.path]
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(path, task=task)
    if _is_adaptive(model):
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
        "histogram": _histogram(entropies, deviations),
    }


def _is_adaptive(model: Any) -> bool:
    return getattr(model.decoder, "adaptive_softmax", None) is not None


def _histogram(entropies: torch.Tensor, deviations: torch.Tensor) -> Dict[str, Any]:
    """Counts (entropy, log Z_c - log Z), and the edges of both."""
    counts, *edges = numpy.histogram2d(entropies.numpy(), deviations.numpy(), bins=BINS)
    names = ("entropy", "deviation")
    return {"counts": counts.tolist(), **{n: e.tolist() for n, e in zip(names, edges)}}


def _batches(cfg: Any, task: Any, model: Any) -> Iterator[Dict[str, Any]]:
    task.load_dataset(cfg.dataset.gen_subset)
    # fairseq's own, not the plugin's, which would make a scorer of the model.
    return LanguageModelingTask.eval_lm_dataloader(
        task,
        dataset=task.dataset(cfg.dataset.gen_subset),
        max_tokens=cfg.dataset.max_tokens or 36000,
        batch_size=cfg.dataset.batch_size,
        max_positions=utils.resolve_max_positions(model.max_positions()),
        num_workers=cfg.dataset.num_workers,
        context_window=cfg.eval_lm.context_window,
    )


@torch.no_grad()
def _partitions(model: Any, task: Any, batches: Any) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
    from fairseq_bnce.output_layer import squashing
    from fairseq_bnce.output_layer.batch import TokenBatch

    squash = squashing.is_squashed(model)
    for sample in batches:
        if sample:
            batch = TokenBatch.from_sample(model, sample, task.target_dictionary.pad())
            found = batch.layer.predictive_statistics(batch.features, squash=squash)
            yield found.log_partition, found.entropy


def _messages(arguments: List[str]) -> List[str]:
    """All that fairseq-eval-lm logs."""
    from fairseq_cli import eval_lm

    print("fairseq-eval-lm", *arguments, flush=True)
    messages = _Messages()
    root, own = logging.getLogger(), sys.argv
    root.setLevel(logging.INFO)
    root.addHandler(messages)
    sys.argv = ["fairseq-eval-lm", *arguments]
    try:
        eval_lm.cli_main()
    finally:
        sys.argv = own
        root.removeHandler(messages)
    return messages.lines


class _Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def complete(arguments: List[str]) -> Dict[str, Any]:
    """Sentence completion, exact and unnormalised: what share is right, and how often they differ.

    The percentages are of all questions; where the checkpoint carries no log Z, raw scores are the
    unnormalised ones. An adaptive softmax has exact ones alone, by fairseq's own model.
    """
    parser = argparse.ArgumentParser(prog="measure.py complete")
    for name in ("--data", "--checkpoint", "--questions", "--answers"):
        parser.add_argument(name, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args(arguments)
    from fairseq_bnce.data import completion
    from fairseq_bnce.text.penn import novel_words

    questions = completion.read_questions(options.questions)
    right = completion.right_letters(questions, options.answers)
    sentences = [novel_words(text) for question in questions for text in question.sentences]
    letters = {
        name: completion.chosen(scores.reshape(len(questions), -1))
        for name, scores in _sentence_scores(options, sentences).items()
    }
    shares = {name: 100 * completion.accuracy(some, right).share for name, some in letters.items()}
    if len(letters) > 1:
        shares["differ"] = 100 * (1 - completion.accuracy(*letters.values()).share)
    return {**shares, "questions": len(questions)}


def _sentence_scores(options: argparse.Namespace, sentences: List[str]) -> Dict[str, Any]:
    """Log-probabilities (n,) of the sentences by the name of the way."""
    from fairseq_bnce import Scorer
    from fairseq_bnce.errors import UnsupportedModelError

    try:
        scorer = Scorer.from_checkpoint(
            options.checkpoint, options.data, shift="none", device=options.device
        )
    except UnsupportedModelError:
        return {"exact": _fairseqs_scores(options, sentences)}
    return {
        "exact": scorer.with_exact(True).score(sentences),
        "unnormalised": scorer.score(sentences),
    }


@torch.no_grad()
def _fairseqs_scores(options: argparse.Namespace, sentences: List[str]) -> numpy.ndarray:
    """Log-probabilities (n,) by fairseq's SequenceScorer, each sentence after and with ``</s>``."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [options.checkpoint], arg_overrides={"data": options.data}
    )
    model.to(options.device).eval()
    words = task.source_dictionary
    encoded = [words.encode_line(text, add_if_not_exist=False).long() for text in sentences]
    scorer = SequenceScorer(task.target_dictionary)
    scores = numpy.zeros(len(sentences))
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place]))
    for start in range(0, len(order), BATCH):
        places = order[start : start + BATCH]
        sample = _sample([encoded[place] for place in places], words)
        sample = utils.apply_to_sample(lambda tensor: tensor.to(options.device), sample)
        for place, hypotheses in zip(places, scorer.generate([model], sample)):
            scores[place] = hypotheses[0]["positional_scores"].double().sum()
    return scores


def _sample(sentences: List[torch.Tensor], words: Any) -> Dict[str, Any]:
    """As fairseq-eval-lm would hand it over: sources begin with ``</s>``, padding comes last."""
    target = collate_tokens(sentences, words.pad())
    source = collate_tokens(sentences, words.pad(), words.eos(), move_eos_to_beginning=True)
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    net_input = {"src_tokens": source, "src_lengths": lengths}
    return {"net_input": net_input, "target": target, "start_indices": [0] * len(sentences)}
