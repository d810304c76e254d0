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
prints: mean and largest, in nats. A model with tied embeddings and without
an output bias keeps <unk> as it is, because its row is read, too: there, new
words take their probability from all words.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Sequence, Set, Tuple

from fairseq_bnce.cli import common
from fairseq_bnce.data.results import check_output, replaced_result
from fairseq_bnce.errors import InputError, at_least, quoted
from fairseq_bnce.text.reading import TextLines, sampled
from fairseq_bnce.text.tokens import SPECIALS

if TYPE_CHECKING:
    from fairseq.data import Dictionary

    from fairseq_bnce.scoring.new_words import Contexts, RowFinder

_TOKENS = 250_000  # tokens of lines with new words, and of lines without
_LINES, _LENGTH = 200, 20  # lines of random words, and words a line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce extend-vocabulary``."""
    common.add_model_flags(parser, has_exact=False)
    common.add_text_flags(parser.add_argument_group("words"))
    add = common.flag_adder(parser)
    add("--words", "new words, one a line", metavar="FILE")
    text = "text with the new words (a model's features are taken from up to 500,000 words)"
    add("--text", text, metavar="FILE", nargs="+", action="extend")
    text = "without --words: how often a new word occurs in the text, at least (default: 1)"
    add("--min-count", text, metavar="N", type=at_least(1), default=1)
    add("--out", "new or empty folder", metavar="DIR", type=Path, required=True)


def run(options: argparse.Namespace) -> None:
    """Append the words, and print the report."""
    if not (options.words or options.text):
        raise InputError("--words, --text: required a list of words or a text, got none")
    out = options.out.resolve()
    check_output(out, overwrite=False, names=())
    import torch

    from fairseq_bnce.scoring.new_words import RowFinder
    from fairseq_bnce.state import ScoringState

    finder = common.load_scorer(RowFinder, options, exact=True)
    old, clean = finder.scorer.dictionary, common.model_words(options, finder.scorer)
    read: Iterable[str] = TextLines(options.text) if options.text else ()
    read = common.shown(read, options, lambda line: (1, len(line.split())), unit=" lines")
    text = [clean(line) for line in read]
    seen = collections.Counter(word for line in text for word in line.split())
    counts = {word: seen[word] for word in _new_words(options, clean, old, seen)}
    lines = _some(text, set(counts)) if text else _random_lines(old)

    def contexts_of(model: RowFinder, words: Iterable[str] = ()) -> Contexts:
        shown = partial(common.shown, options=options, total=len(lines), unit=" lines")
        return model.contexts(lines, words, shown)

    contexts = contexts_of(finder, counts)
    found = finder.extension(contexts, list(counts.values()), sum(seen.values()) + len(text))
    growth = {"mean": contexts.mean(found.growth), "largest": float(found.growth.max())}
    report = {"added": len(counts), "contexts": len(found.growth), "growth_of_log_z": growth}
    mean = contexts.mean(contexts.log_z)
    del contexts  # gigabytes, perhaps
    with replaced_result(out, overwrite=False, names=()) as scratch:
        path = scratch / "result" / "checkpoint.pt"
        path.parent.mkdir()
        new = copy.deepcopy(old)
        for word, count in counts.items():  # at the end, so that no old word's id changes
            new.add_symbol(word, max(1, count))
        new.save(str(path.with_name("dict.txt")))
        content = finder.extended(options.path, found, new)
        torch.save(content, path)
        state = ScoringState(content["task_state"])
        if state.mu_z is not None:  # measure log Z_c where new words are read, too
            contexts = contexts_of(common.load_scorer(RowFinder, options, path, exact=True))
            state.mu_z += contexts.mean(contexts.log_z) - mean
            torch.save(content, path)
    print(json.dumps(report, indent=1))


def _new_words(
    options: argparse.Namespace, clean: Callable, dictionary: Dictionary, seen: Mapping[str, int]
) -> List[str]:
    """Return the words to add, the most frequent ones first."""
    if options.words is None:
        found = [word for word, count in seen.items() if count >= options.min_count]
    else:
        found = []
        for line in filter(str.strip, TextLines([options.words])):
            found.append(clean(line))
            if {line.strip(), found[-1]} & set(SPECIALS) or len(found[-1].split()) != 1:
                required = "one word a line, as the model's text is cut, and no special symbol"
                got = f"{quoted(line.strip())}, cut as {quoted(found[-1])}"
                raise InputError(f"--words {options.words}: required {required}, got {got}")
    new = [word for word in dict.fromkeys(found) if word not in dictionary.indices]
    if not new:
        raise InputError("--words, --text: required a word that the model does not know, got none")
    return sorted(new, key=lambda word: -seen.get(word, 0))


def _some(text: Sequence[str], new: Set[str]) -> List[Tuple[str, float]]:
    """Return lines with new words, and lines without, at random where there are many.

    Each line has a weight: how many lines of its kind it stands for.
    """
    parts: Dict[bool, List[str]] = {True: [], False: []}
    for line in text:
        parts[not new.isdisjoint(line.split())].append(line)
    found: List[Tuple[str, float]] = []
    for part in parts.values():
        some = sampled(part, _TOKENS)
        all_tokens, tokens = (sum(len(line.split()) + 1 for line in one) for one in (part, some))
        found += [(line, all_tokens / tokens) for line in some]
    return found


def _random_lines(dictionary: Dictionary) -> List[Tuple[str, float]]:
    """Return lines of words drawn by their counts in dict.txt."""
    draw, first = random.Random(1), dictionary.nspecial
    words, counts = dictionary.symbols[first:], [max(1, c) for c in dictionary.count[first:]]
    return [(" ".join(draw.choices(words, counts, k=_LENGTH)), 1.0) for _ in range(_LINES)]
