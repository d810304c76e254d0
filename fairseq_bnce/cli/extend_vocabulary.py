"""Append words to the dictionary and the parameters of a trained model.

The words come from a list (--words), or are the words of a text that the
model does not know (--text). DIR gets checkpoint.pt, without an optimiser's
state, and dict.txt, in which old words keep their places. Binarise data with
this dict.txt to train on (fairseq-train --finetune-from-model).

With --text, output rows are fitted to the text, with all old parameters
frozen. A new word's embedding is the mean of those of twenty words with
similar output rows. Words that the text lacks, or all words without --text,
stay near the mean of the 1,000 rarest words.

New words take their probability from <unk>: as much as they have in the text
or, without --text, half. Scores of other old words do not change. Their
exact log-probabilities fall by the growth of log Z_c, which the command
prints: mean and largest, in nats.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Set

import torch

from fairseq_bnce import checkpoints
from fairseq_bnce.checkpoints import extending
from fairseq_bnce.cli import common
from fairseq_bnce.data.results import check_output, replaced_result
from fairseq_bnce.errors import InputError, at_least, quoted
from fairseq_bnce.scoring.new_words import ExtendingScorer, Extension
from fairseq_bnce.text.reading import TextLines, sampled
from fairseq_bnce.text.tokens import SPECIALS

_TOKENS = 250_000  # of lines with new words, and of lines without
_LINES, _LENGTH = 200, 20  # of random words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce extend-vocabulary``."""
    common.add_model_flags(parser, has_exact=False)
    common.add_text_flags(parser.add_argument_group("words"))
    add = common.flag_adder(parser)
    add("--words", "new words, one a line", metavar="FILE")
    text = "text with the new words (a model's features are taken from up to 500,000 words)"
    add("--text", text, metavar="FILE", nargs="+")
    text = "without --words: how often a new word occurs in the text, at least (default: 1)"
    add("--min-count", text, metavar="N", type=at_least(1), default=1)
    add("--out", "new or empty folder", metavar="DIR", type=Path, required=True)


def run(options: argparse.Namespace) -> None:
    """Append the words, and print the report."""
    if not (options.words or options.text):
        raise InputError("--words, --text: required a list of words or a text, got none")
    out = options.out.resolve()
    check_output(out, overwrite=False, names=())
    scorer = common.load_scorer(ExtendingScorer, options, exact=True)
    clean = common.ModelWords(options, scorer)
    lines = [clean(line) for line in TextLines(options.text)] if options.text else []
    seen = collections.Counter(word for line in lines for word in line.split())
    words = _new_words(options, scorer.dictionary, seen)
    counts = {word: seen[word] for word in words}
    some = _some(lines, set(words)) if lines else _random_lines(scorer.dictionary)
    contexts = scorer.contexts(some, {word: number for number, word in enumerate(words)})
    tokens = sum(seen.values()) + len(lines)
    found = scorer.extension(contexts, list(counts.values()), tokens)
    _write(out, options.path, scorer, found, counts)
    growth = {"mean": float(found.growth.mean()), "largest": float(found.growth.max())}
    report = {"added": len(words), "contexts": len(found.growth), "growth_of_log_z": growth}
    print(json.dumps(report, indent=1))


def _new_words(options: argparse.Namespace, dictionary: Any, seen: Mapping[str, int]) -> List[str]:
    """Return the words to add, the most frequent ones first."""
    if options.words is None:
        found = [word for word, count in seen.items() if count >= options.min_count]
    else:
        found = list(dict.fromkeys(filter(None, map(str.strip, TextLines([options.words])))))
        for word in found:
            if word in SPECIALS or len(word.split()) > 1:
                required = "one word a line, and no special symbol"
                raise InputError(
                    f"--words {options.words}: required {required}, got {quoted(word)}"
                )
    new = [word for word in found if word not in dictionary.indices]
    if not new:
        raise InputError("--words, --text: required a word that the model does not know, got none")
    return sorted(new, key=lambda word: -seen.get(word, 0))


def _some(lines: Sequence[str], new: Set[str]) -> Sequence[str]:
    """Return lines with new words, and lines without, at random where there are many."""
    parts: Dict[bool, List[str]] = {True: [], False: []}
    for line in lines:
        parts[not new.isdisjoint(line.split())].append(line)
    return [line for part in parts.values() for line in sampled(part, _TOKENS)]


def _random_lines(dictionary: Any) -> Sequence[str]:
    """Return lines of words drawn by their counts in dict.txt."""
    draw, first = random.Random(1), dictionary.nspecial
    words, counts = dictionary.symbols[first:], [max(1, c) for c in dictionary.count[first:]]
    return [" ".join(draw.choices(words, counts, k=_LENGTH)) for _ in range(_LINES)]


def _write(
    out: Path, path: str, scorer: ExtendingScorer, found: Extension, counts: Dict[str, int]
) -> None:
    """Write the checkpoint ``path`` and its dictionary, with the new words, to a folder."""
    content = checkpoints.read(path)
    content.pop("last_optimizer_state", None)  # which has no such rows
    parameters, names = content["model"], scorer.names
    of_unk = names["bias"] or names["output"]
    extending.add_to_row(parameters, of_unk, scorer.dictionary.unk(), found.unk)
    for kind in filter(names.get, names):
        extending.append_rows(parameters, names[kind], getattr(found.rows, kind))
    dictionary = extending.extended_dictionary(scorer.dictionary, counts)
    state = content.get("task_state") or {}
    extending.update_state(state, dictionary, float(found.growth.mean()))
    content["task_state"] = state
    with replaced_result(out, overwrite=False, names=()) as scratch:
        result = scratch / "result"
        result.mkdir()
        torch.save(content, result / "checkpoint.pt")
        dictionary.save(str(result / "dict.txt"))
