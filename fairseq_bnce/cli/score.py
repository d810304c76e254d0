"""Log-probabilities of plain text, a line out for each line in.

Columns, separated by tabs: log-probability of the line (nats, its </s> counted in), tokens (its
</s> counted in), words that are out of the vocabulary. A column "word log-probability" for each
word follows with --per-word.

Scores are unnormalised unless --exact asks for more: a word that is nearly certain, where log Z_c
is above the constant log Z, may have one above 0, which is no mistake.

Lines are sentences: each is scored for itself, after </s>. Lines longer than the model reads at
once are scored in blocks, each of which sees words of the one before.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import sys
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import numpy as np

from fairseq_bnce.cli.common import (
    add_files,
    add_model_options,
    load_scorer,
    note,
    note_bad_lines,
    progress_bar,
    without_nan,
)
from fairseq_bnce.cli.words import ModelWords, add_text_options, check_text_options
from fairseq_bnce.errors import InputError, quoted
from fairseq_bnce.scoring import Scorer, SentenceScore
from fairseq_bnce.text.numerals import at_least, decimal, finite
from fairseq_bnce.text.reading import TextLines
from fairseq_bnce.text.writing import Output

Format = Callable[[SentenceScore], str]
MOST_NATS = 709  # a float64 holds no exponential of more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``fairseq-bnce score``."""
    add_model_options(parser)
    add_text_options(parser)
    add_files(parser)
    group = parser.add_argument_group("text")
    group.add_argument(
        "--document",
        action="store_true",
        help="the lines are one running text: each is scored after all before it, as far as the "
        "model sees",
    )
    group.add_argument(
        "--context-window",
        type=at_least(0),
        metavar="N",
        help="words that a block sees of those before it, where a text is longer than the model "
        "reads at once (default: half of what it reads); with as many as a block of its training "
        "had, or more, the model reads as many words as it has positions for",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--per-word", action="store_true", help="the score of every word, too")
    group.add_argument(
        "--summary",
        action="store_true",
        help="in the place of lines: perplexities with and without out-of-vocabulary words, and "
        "counts",
    )
    group.add_argument(
        "--base", choices=("e", "10"), default="e", help="of the logarithms (default: e)"
    )
    group.add_argument("--json", action="store_true", help="a JSON object in each line")
    group.add_argument(
        "--nemo",
        type=finite,
        nargs=2,
        metavar=("ALPHA", "BETA"),
        help="the lines are beams as NeMo writes them, text, a tab and its score; out goes the "
        "text, a tab and score + ALPHA x log-probability + BETA x characters",
    )


def run(options: argparse.Namespace) -> int:
    """Score the text."""
    check_text_options(options)
    text = TextLines(options.files)
    beams = _Beams(options) if options.nemo else None
    scorer = load_scorer(Scorer, options)
    words = ModelWords(options, scorer)
    texts = map(beams.text, text) if beams else text
    report = _Report(options, text, words, beams.format if beams else None)
    windows = scorer.score_windows(
        map(words, texts),
        document=options.document,
        context_window=options.context_window,
        is_ready=text.is_ready,
    )
    for window in windows:
        report.add(window)
    report.end()
    return 0


class _Beams:
    """Beams of NeMo: computes the scores that its eval_neural_rescorer.py computes."""

    def __init__(self, options: argparse.Namespace):
        for name in ("json", "per_word", "summary", "document"):
            if getattr(options, name):
                raise InputError(f"--nemo: required no --{name.replace('_', '-')}, got both")
        self._alpha, self._beta = options.nemo
        self._unit = _nats(options.base)
        self._read: Deque[Tuple[str, float]] = collections.deque()
        self._lines = 0

    def text(self, line: str) -> str:
        """Return the text of a line; keep the line until its text is scored."""
        self._lines += 1
        text, _, number = line.rpartition("\t")
        score = decimal(number)
        if score is None or math.isnan(score) or "\t" in text:
            required = "--nemo: required a text, a tab and a number"
            raise InputError(f"{required}, got {quoted(line)} (line {self._lines:,} of the input)")
        self._read.append((text, score))
        return text

    def format(self, score: SentenceScore) -> str:
        """Return the line of the oldest text that waits for its score."""
        text, before = self._read.popleft()
        after = before + self._alpha * score.total / self._unit + self._beta * len(text)
        return f"{text}\t{after:.6f}"


class _Report:
    """Prints scores as they come, then what concerns the whole text."""

    def __init__(
        self,
        options: argparse.Namespace,
        text: TextLines,
        words: ModelWords,
        line: Optional[Format],
    ):
        unit = _nats(options.base)
        self._words = words
        self.text, self.summary = text, _Summary(unit) if options.summary else None
        columns = _json_format if options.json else _column_format
        self._format = line or columns(options.per_word, unit)
        self._is_json = options.json
        self._in_blocks = 0
        self._out = Output(None)
        # Lines of scores on the same terminal show the progress.
        is_wanted = options.summary or not (sys.stdout and sys.stdout.isatty())
        self._bar = progress_bar(is_wanted, total=text.total_bytes, unit="B", unit_scale=True)

    def add(self, window: List[SentenceScore]) -> None:
        if self.summary is None:
            for score in window:
                self._out.write(self._format(score))
            self._out.flush()
        else:
            self.summary.add(window)
        self._in_blocks += sum(score.in_blocks for score in window)
        words = sum(len(score.words) - 1 for score in window)  # </s> left out
        self._words.count(words, sum(score.oov for score in window))
        self._bar.update(self.text.read_bytes - self._bar.n)

    def end(self) -> None:
        self._bar.close()
        if self.summary is not None:
            found = self.summary.as_dict()
            self._out.write(json.dumps(without_nan(found)) if self._is_json else _as_kenlm(found))
            self._out.flush()
        note_bad_lines(self.text)
        self._words.end()
        if self._in_blocks > 1:
            note(f"{self._in_blocks:,} lines were scored in blocks")


class _Summary:
    """Sums over all lines; ``unit``: nats in one unit of the printed log-probabilities."""

    def __init__(self, unit: float) -> None:
        self.unit = unit
        self.log_prob = self.oov_log_prob = 0.0
        self.lines = self.tokens = self.oov = 0

    def add(self, window: List[SentenceScore]) -> None:
        scores = np.concatenate([score.log_probs for score in window])
        is_oov = np.concatenate([score.is_oov for score in window])
        self.log_prob += float(scores.sum())
        self.oov_log_prob += float(scores[is_oov].sum())
        self.lines += len(window)
        self.tokens += len(scores)
        self.oov += int(is_oov.sum())

    def as_dict(self) -> Dict[str, Any]:
        known = self.log_prob - self.oov_log_prob
        return {
            "ppl_with_oov": _perplexity(self.log_prob, self.tokens),
            "ppl_without_oov": _perplexity(known, self.tokens - self.oov),
            "oov": self.oov,
            "tokens": self.tokens,
            "lines": self.lines,
            "log_prob": self.log_prob / self.unit,
        }


def _perplexity(log_prob: float, tokens: int) -> float:
    nats = -log_prob / tokens if tokens else math.nan
    return math.inf if nats > MOST_NATS else math.exp(nats)


def _nats(base: str) -> float:
    """Return the nats in one unit of a logarithm."""
    return math.log(10) if base == "10" else 1.0


def _as_kenlm(found: Dict[str, Any]) -> str:
    """Format a summary as KenLM's query does."""
    return (
        f"Perplexity including OOVs:\t{found['ppl_with_oov']:.6g}\n"
        f"Perplexity excluding OOVs:\t{found['ppl_without_oov']:.6g}\n"
        f"OOVs:\t{found['oov']}\n"
        f"Tokens:\t{found['tokens']}"
    )


def _column_format(per_word: bool, unit: float) -> Format:
    def format_line(score: SentenceScore) -> str:
        line = f"{score.total / unit:.6f}\t{len(score.words)}\t{score.oov}"
        if per_word:
            pairs = zip(score.words, (score.log_probs / unit).tolist())
            line += "".join([f"\t{word} {log_prob:.6f}" for word, log_prob in pairs])
        return line

    return format_line


def _json_format(per_word: bool, unit: float) -> Format:
    def format_line(score: SentenceScore) -> str:
        found: Dict[str, Any] = {
            "log_prob": round(score.total / unit, 6),
            "tokens": len(score.words),
            "oov": score.oov,
        }
        if per_word:
            found["words"] = score.words
            found["log_probs"] = (score.log_probs / unit).round(6).tolist()
            found["is_oov"] = score.is_oov.tolist()
        return json.dumps(found, ensure_ascii=False)

    return format_line
