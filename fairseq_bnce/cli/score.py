"""Print log-probabilities of plain text, one line for each line of text.

The columns are separated by tabs: the log-probability of the line (nats, with
its </s>), the number of tokens (with </s>), and the number of words out of
the vocabulary. With --per-word, a column "word log-probability" follows for
each word.

Scores are unnormalised unless you ask for --exact. An unnormalised score may
be above 0 for a word that is nearly certain; this is no error.

Each line is a sentence and is scored by itself, after </s>. A line that is
longer than the model reads at once is scored in blocks; each block sees some
words of the block before, by default half of what the model reads. A model
with positions reads as many words as in training. With a --context-window of
that many words or more, it reads as many words as it has positions.

--mix-with mixes the probabilities of several models, word by word: the sum of
weight x probability. A word that a model does not know has probability 0 by
it if another model knows the word: <unk> stands for the words that none knows.

--nemo rescores beams as NeMo writes them, lines of a text, a tab and a score.
It prints the text, a tab, and score + ALPHA x log-probability + BETA x number
of characters.
"""

from __future__ import annotations

import argparse
import collections
import csv
import itertools
import json
import math
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterable, Iterator, Mapping, Optional, Tuple

import numpy as np

from fairseq_bnce.cli import common
from fairseq_bnce.errors import InputError, at_least, quoted
from fairseq_bnce.text.reading import STDIN, TextLines
from fairseq_bnce.text.training_text import ModelWords
from fairseq_bnce.text.writing import Output

if TYPE_CHECKING:
    from fairseq_bnce.scoring import SentenceScore

_UNITS = {"e": 1.0, "10": math.log(10)}  # nats in one unit of a logarithm, by its base
_JOINTS = {"@@": "@@ (?!</s>)", "sentencepiece": " (?!\u2581|</s>)"}  # between a word's pieces
_PERPLEXITIES = "Perplexity including OOVs:\t{:.6g}\nPerplexity excluding OOVs:\t{:.6g}\n"
# Forms of a summary, by the start of the names in JSON.
_FORMS = {"": _PERPLEXITIES + "OOVs:\t{}\nTokens:\t{}"}
_FORMS["word_"] = _PERPLEXITIES.replace("ity ", "ity per word ") + "OOV words:\t{}\nWords:\t{}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``fairseq-bnce score``."""
    common.add_model_flags(parser)
    common.add_text_flags(parser.add_argument_group("words"))
    common.add_files(parser)
    add = common.flag_adder(parser.add_argument_group("text"))
    add("--document", "score each line after all lines before, as far as the model sees")
    text = "number of words before a block of a long text that the block sees"
    add("--context-window", text, metavar="N", type=at_least(0))
    add("--given", "lines are 'context TAB text': score the text after its context")
    add("--no-eos", "leave the </s> of each line out of sums and counts")
    text = "score part I of N, lines in a row: all outputs together are that of FILE; no --document"
    add("--shard", text, metavar="I/N", type=shard)
    group = parser.add_argument_group("output")
    add = common.flag_adder(group.add_mutually_exclusive_group())
    add("--per-word", "print the score of each word as well")
    text = "print a table (CSV with tabs) of words instead: line, position, word, log_prob, is_oov"
    add("--table", text)
    add("--summary", "print perplexities with and without unknown words, and counts, instead")
    text = "rescore NeMo's beams with these weights of log-probability and length"
    add("--nemo", text, metavar=("ALPHA", "BETA"), type=float, nargs=2)
    add = common.flag_adder(group)
    text = "--per-word, --table and --summary for whole words: pieces go on after '@@', or begin "
    add("--join-subwords", text + "with U+2581", choices=tuple(_JOINTS))
    add("--base", "base of the logarithms (default: e)", choices=tuple(_UNITS), default="e")
    add("--json", "print a JSON object in each line")
    text = "appears when it is complete, FILE.part until then (default: standard output, also -)"
    add("--out", text, metavar="FILE")


def run(options: argparse.Namespace) -> None:
    """Score the text."""
    if options.shard and options.document:
        raise InputError("--shard: required lines that are scored by themselves, got --document")
    common.check_files(options, {"--out": options.out}, options.files)
    text = TextLines(options.files)
    with Output(options.out) as out:
        _score(text, out, options)


def _score(text: TextLines, out: Output, options: argparse.Namespace) -> None:
    """Write the scores of the text."""
    blocks = {"document": options.document, "context_window": options.context_window}
    scorer, words = common.load_model(options, **blocks)
    if options.given and not scorer.is_causal:
        raise InputError("--given: required a model of past words, got --bidirectional-context")
    beams: Deque[Tuple[str, float]] = collections.deque()
    contexts: Deque[int] = collections.deque()  # numbers of words
    lines, first = (text, 0) if options.shard is None else _part(text, *options.shard)
    numbers = itertools.count(first + 1)
    lines = _beam_texts(lines, beams) if options.nemo else lines
    lines = _after_contexts(lines, words, contexts) if options.given else map(words, lines)
    form = _json_object if options.json else _columns
    table = csv.writer(out, "excel-tab", lineterminator="")
    if options.table and (options.shard or (1,))[0] == 1:
        table.writerow(["line", "position", "word", "log_prob", "is_oov"])
    units = ("", "word_") if options.join_subwords else ("",)
    sums: Dict[str, Any] = {unit: collections.Counter() for unit in units}
    nats = _UNITS[options.base]
    # Lines of scores on the same terminal show the progress.
    has_bar = options.summary or options.out or not (sys.stdout and sys.stdout.isatty())
    windows = scorer.score_windows(lines, tokenized=True, is_ready=text.is_ready, **blocks)
    windows = words.counting(windows)
    for window in common.shown(windows, options, text=text, is_wanted=has_bar):
        for score in window:
            first = contexts.popleft() if options.given else 0
            score = _words(score, first, -1 if options.no_eos else None)
            score = score._replace(log_probs=score.log_probs / nats)
            whole = _joined(score, options.join_subwords)
            if options.nemo:
                out.write(_rescored(*beams.popleft(), score.total, *options.nemo))
            elif options.table:
                table.writerows(_rows(next(numbers), whole))
            elif options.summary:
                for counts, one in zip(sums.values(), (score, whole)):
                    counts.update(_counts(one))
            else:
                out.write(form(score, whole, options.per_word))
        out.flush()
    if options.summary:
        out.write(_summary(sums, options))


def shard(text: str) -> Tuple[int, int]:
    """Return (I, N) of ``I/N``: a type for argparse."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise argparse.ArgumentTypeError(f"required 1/N to N/N, got {text}")
    return number, parts


def _part(text: TextLines, number: int, parts: int) -> Tuple[Iterable[str], int]:
    """Return one of several parts of a text, which is read twice: lines, and how many go before."""
    # Read again, a pipe would be empty or block.
    if STDIN in text.names or not all(map(os.path.isfile, text.names)):
        got = f"{' '.join(text.names)}, which is read once"
        raise InputError(f"--shard: required files, got {got}")
    count = sum(1 for _ in TextLines(text.names))
    first = count * (number - 1) // parts
    return itertools.islice(text, first, count * number // parts), first


def _after_contexts(lines: Iterable[str], words: ModelWords, contexts: Deque[int]) -> Iterator[str]:
    """Yield contexts with their texts; keep how many words each context has."""
    for number, line in enumerate(lines, 1):
        context, tab, text = line.partition("\t")
        if not tab:
            raise _bad_line("--given: required a context, a tab and a text", number, line)
        context = words(context)
        contexts.append(len(context.split()))
        yield f"{context} {words(text)}"


def _words(score: SentenceScore, first: int, end: Optional[int]) -> SentenceScore:
    """Return the scores of some of a line's words."""
    names = ("log_probs", "words", "is_oov")
    return score._replace(**{name: getattr(score, name)[first:end] for name in names})


def _joined(score: SentenceScore, marks: Optional[str]) -> SentenceScore:
    """Return the scores of whole words: a word is unknown if one of its pieces is."""
    if not (marks and score.words):
        return score
    words = re.sub(_JOINTS[marks], "\n", " ".join(score.words)).split(" ")
    starts = np.cumsum([0, *(word.count("\n") + 1 for word in words[:-1])])
    words = [re.sub("\n|^\u2581(?!$)", "", word) for word in words]
    is_oov = np.logical_or.reduceat(score.is_oov, starts)
    log_probs = np.add.reduceat(score.log_probs, starts)
    return score._replace(log_probs=log_probs, words=words, is_oov=is_oov)


def _beam_texts(lines: Iterable[str], beams: Deque[Tuple[str, float]]) -> Iterator[str]:
    """Yield the texts of NeMo's beams; keep text and score until the text is scored."""
    for number, line in enumerate(lines, 1):
        text, _, score = line.partition("\t")
        try:
            beams.append((text, float(score)))
        except ValueError:
            raise _bad_line("--nemo: required a text, a tab and a number", number, line) from None
        yield text


def _bad_line(required: str, number: int, line: str) -> InputError:
    return InputError(f"{required}, got {quoted(line)} (line {number:,} of the input)")


def _rescored(text: str, before: float, total: float, alpha: float, beta: float) -> str:
    """Return the line of a beam, as NeMo's eval_neural_rescorer.py computes it."""
    return f"{text}\t{before + alpha * total + beta * len(text):.6f}"


def _columns(score: SentenceScore, whole: SentenceScore, per_word: bool) -> str:
    """Return the line of a score, columns separated by tabs; ``whole`` has whole words."""
    line = f"{score.total:.6f}\t{len(score.words)}\t{score.oov}"
    pairs = zip(whole.words, whole.log_probs.tolist()) if per_word else ()
    return line + "".join([f"\t{word} {log_prob:.6f}" for word, log_prob in pairs])


def _rows(number: int, score: SentenceScore) -> Iterator[Tuple]:
    """Yield the rows of a table, one for each word of a line."""
    each = zip(score.words, score.log_probs.tolist(), score.is_oov.tolist())
    for place, (word, log_prob, is_oov) in enumerate(each, 1):
        yield number, place, word, f"{log_prob:.6f}", int(is_oov)


def _json_object(score: SentenceScore, whole: SentenceScore, per_word: bool) -> str:
    """Return the line of a score, as JSON; ``whole`` has whole words."""
    found: Dict[str, object] = {"log_prob": round(score.total, 6)}
    found.update(tokens=len(score.words), oov=score.oov)
    if per_word:
        found.update(words=whole.words, log_probs=whole.log_probs.round(6).tolist())
        found["is_oov"] = whole.is_oov.tolist()
    return json.dumps(found, ensure_ascii=False)


def _counts(score: SentenceScore) -> Dict[str, float]:
    """Return what a summary adds up over lines."""
    found: Dict[str, float] = {"lines": 1, "tokens": len(score.words), "total": score.total}
    return {**found, "oov": score.oov, "oov_total": float(score.log_probs[score.is_oov].sum())}


def _summary(sums: Mapping[str, Mapping[str, float]], options: argparse.Namespace) -> str:
    """Return the summary of a text, as JSON or as KenLM's query prints it."""
    found: Dict[str, float] = {}
    nats = _UNITS[options.base]
    for unit, counts in sums.items():
        total, tokens, oov = counts["total"], counts["tokens"], counts["oov"]
        known, known_total = tokens - oov, total - counts["oov_total"]
        found[f"{unit}ppl_with_oov"] = math.exp(-nats * total / tokens) if tokens else math.nan
        without = math.exp(-nats * known_total / known) if known else math.nan
        found[f"{unit}ppl_without_oov"] = without
        found.update({f"{unit}oov": oov, f"{unit}tokens": tokens})
    if options.json:
        found.update(lines=sums[""]["lines"], log_prob=sums[""]["total"])
        return json.dumps(common.without_nan(found))
    text = "\n".join(_FORMS[unit] for unit in sums).format(*found.values())
    return text.replace("\tnan", "\tnone")  # without words
