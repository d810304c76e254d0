"""Read what fairseq-train (``--log-format json``) and fairseq-eval-lm print."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from .processes import STARTED, CommandFailed
from .train import CLOCK

WARM_UP = 100  # updates after a start that are not timed: caches, allocator, CPU frequency
_STATS = re.compile(r"\| INFO \| (\w+) \| (\{.*\})\s*$")
_RESUMED = re.compile(r"Loaded checkpoint .* \(epoch \d+ @ (\d+) updates\)")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_EVALUATED = re.compile(r"Evaluated ([\d,]+) tokens in [\d.]+s \(([\d.]+) tokens/s\)")
_SKIPPED = re.compile(r"([\d,]+) samples have invalid sizes and will be skipped")
_LOSS = re.compile(r"Loss \(base 2\): (\S+), Perplexity")
# Messages up to which it trained, and messages after which it trains (again).
_WORKED = re.compile(
    r"\| (train_inner|train) \| \{|begin validation on|Preparing to save checkpoint"
)
_STARTS = re.compile(r"\| valid\w* \| \{|Saved checkpoint|Start iterating over samples")


class UnreadableLog(CommandFailed):
    """The output of a successful command is incomplete."""


class Interval(NamedTuple):
    """One train_inner line.

    Attributes:
        first, last: the updates that it spans, ``first`` not included.
        words: training targets.
        seconds: the time they took, validation left out.
        exact: no validation and no interruption in between, so that fairseq's own words/s is that
            of training alone.
        steady: past the warm-up, too.
    """

    first: int
    last: int
    words: float
    seconds: float
    exact: bool
    steady: bool


@dataclass
class TrainingLog:
    """The log of a run with all its attempts; updates that a resumed run repeats count once.

    Attributes:
        validations: the update and the statistics as fairseq logs them (ppl, u_ppl, ...).
        processor: processor seconds up to an update, without validation and saving.
    """

    intervals: List[Interval] = field(default_factory=list)
    validations: List[Dict[str, Any]] = field(default_factory=list)
    parameters: Optional[int] = None
    processor: Dict[int, float] = field(default_factory=dict)

    def words_at(self, update: int) -> Optional[float]:
        """Return training targets up to an update; None without any interval."""
        return self._up_to(update, lambda interval: interval.words)

    def words_per_second(self) -> Dict[str, Any]:
        """Return words/s over the steady intervals, or over the best intervals there are."""
        steady = [i for i in self.intervals if i.steady]
        used = steady or [i for i in self.intervals if i.exact] or self.intervals
        used = [i for i in used if i.seconds]
        return {
            "value": sum(i.words for i in used) / sum(i.seconds for i in used) if used else None,
            "steady": bool(steady),
            "intervals": len(used),
        }

    def curve(self) -> List[Dict[str, Any]]:
        """Return every validation: update, training and processor seconds, logged statistics."""
        found = []
        for point in self.validations:
            times = {"seconds": self._up_to(point["update"], lambda interval: interval.seconds)}
            if point["update"] in self.processor:
                times["processor_seconds"] = self.processor[point["update"]]
            found.append({**times, **point})
        return found

    def _up_to(self, update: int, value: Callable[[Interval], float]) -> Optional[float]:
        """Sum a number of the intervals; past the last line, at the pace of its interval."""
        spans = [i for i in self.intervals if i.first < update]
        if not spans:
            return None
        last = spans[-1]
        share = (update - last.first) / (last.last - last.first)
        return sum(map(value, spans[:-1])) + share * value(last)

    def add(self, lines: List[str], warm_up: int) -> None:
        """Add an attempt; remove what it repeats from earlier attempts."""
        parameters = [m.group(1) for m in map(_PARAMETERS.search, lines) if m]
        if parameters:
            self.parameters = int(parameters[-1].replace(",", ""))
        if not any(map(_STATS.search, lines)):
            return
        start = next((int(m.group(1)) for m in map(_RESUMED.search, lines) if m), 0)
        self.processor = {u: spent for u, spent in self.processor.items() if u <= start}
        self.intervals = [i for i in self.intervals if i.last <= start]
        self.validations = [v for v in self.validations if v["update"] <= start]
        self._add_processor(lines)
        self._add_statistics(lines, start, warm_up)

    def _add_statistics(self, lines: List[str], start: int, warm_up: int) -> None:
        # fairseq restores the meters of an interval that a checkpoint cut in two: it begins where
        # the last surviving one ended, and may hold the validation before that checkpoint.
        position = self.intervals[-1].last if self.intervals else 0
        exact = start == 0
        for tag, found in (one for one in map(_statistics, lines) if one):
            if tag == "train_inner":
                steady = exact and position >= start + warm_up
                self.intervals.append(_interval(position, found, exact, steady))
                position, exact = self.intervals[-1].last, True
            elif "valid_num_updates" in found:
                stats = {k[len("valid_") :]: v for k, v in found.items() if k.startswith("valid_")}
                self.validations.append({"update": int(stats.pop("num_updates")), **stats})
                exact = False

    def _add_processor(self, lines: List[str]) -> None:
        """Add processor times; what a resumed run repeats does not count."""
        spent = max(self.processor.values(), default=0.0)
        clock, mark = None, None
        for line in lines:
            if line.startswith(CLOCK):
                clock = float(line[len(CLOCK) :])
            elif clock is not None and (_WORKED.search(line) or _STARTS.search(line)):
                spent += clock - mark if _WORKED.search(line) and mark is not None else 0.0
                mark = clock
                found = _statistics(line)
                for name in {"num_updates", "valid_num_updates"} & set(found[1] if found else ()):
                    self.processor[int(found[1][name])] = spent


def read_training(log: Path, warm_up: int = WARM_UP) -> TrainingLog:
    """Read a training log of one attempt or several.

    Raises:
        UnreadableLog: if it holds no training.
    """
    found = TrainingLog()
    for attempt in log.read_text(encoding="utf-8", errors="replace").split(STARTED):
        found.add(attempt.splitlines(), warm_up)
    if found.parameters is None:
        raise UnreadableLog(f"{log.name} holds no 'num. shared model params' line")
    return found


def read_scoring(lines: Iterable[str]) -> Dict[str, float]:
    """Return perplexity, tokens and seconds from the output of fairseq-eval-lm.

    Raises:
        UnreadableLog: without a result, or if the result leaves out a part of the data.
    """
    text = "\n".join(lines)
    evaluated, loss = _EVALUATED.search(text), _LOSS.search(text)
    skipped = _SKIPPED.search(text)
    if skipped:  # it would go on, down to a perplexity of 1.00 over 0 tokens
        raise UnreadableLog(
            f"fairseq-eval-lm skipped {skipped.group(1)} blocks as too long for the model; give it "
            "--eval-flags '--tokens-per-sample N' with the training's N"
        )
    if not evaluated or not loss:
        raise UnreadableLog("fairseq-eval-lm printed no 'Evaluated ... tokens' or 'Loss' line")
    tokens, rate = int(evaluated.group(1).replace(",", "")), float(evaluated.group(2))
    # From the loss: the printed perplexity has two decimals, too few for one below 1. The seconds
    # come from the rate, since eval-lm rounds its own to tenths.
    bits = float(loss.group(1))
    ppl = 2**bits if bits < 1024 else math.inf
    return {"ppl": ppl, "tokens": tokens, "seconds": tokens / rate if rate else 0.0}


def _statistics(line: str) -> Any:
    """Return (tag, numbers) of a line of statistics, or None; fairseq prints numbers as strings."""
    found = _STATS.search(line)
    if found is None:
        return None
    stats = json.loads(found.group(2))
    return found.group(1), {name: float(v) for name, v in stats.items() if v is not None}


def _interval(first: int, found: Dict[str, float], exact: bool, steady: bool) -> Interval:
    last = int(found["num_updates"])
    words = found["wpb"] * (last - first)
    # train_wall leaves out validation but is rounded to seconds; wps is exact but counts it in.
    exact = exact and bool(found.get("wps"))
    seconds = words / found["wps"] if exact else found["train_wall"]
    return Interval(first, last, words, seconds, exact, exact and steady)
