"""Read what fairseq-train (``--log-format json``) and fairseq-eval-lm print."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from .processes import STARTED
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


class UnreadableLog(ValueError):
    """The output of a successful command is incomplete."""


@dataclass(frozen=True)
class Interval:
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


@dataclass(frozen=True)
class Validation:
    """One validation: the update and its statistics as fairseq logs them (ppl, u_ppl, ...)."""

    update: int
    stats: Dict[str, float]


@dataclass
class TrainingLog:
    """The log of a run with all its attempts; updates that a resumed run repeats count once."""

    intervals: List[Interval] = field(default_factory=list)
    validations: List[Validation] = field(default_factory=list)
    parameters: Optional[int] = None
    processor: List[Tuple[int, float]] = field(default_factory=list)
    """(update, processor seconds up to it); empty for a log without clock lines."""

    def seconds_at(self, update: int) -> Optional[float]:
        """Return training time without validation up to an update; None if nothing was timed."""
        return self._up_to(update, lambda interval: interval.seconds)

    def words_at(self, update: int) -> Optional[float]:
        """Return training targets up to an update; None without any interval."""
        return self._up_to(update, lambda interval: interval.words)

    def _up_to(self, update: int, value: Callable[[Interval], float]) -> Optional[float]:
        spans = [i for i in self.intervals if i.first < update]
        if not spans:
            return None
        whole, last = spans[:-1], spans[-1]
        # Past the last line of the log: at the pace of its last interval.
        share = (update - last.first) / (last.last - last.first)
        return sum(map(value, whole)) + share * value(last)

    def processor_seconds_at(self, update: int) -> Optional[float]:
        """Return user and system time without validation and saving; None if not logged."""
        return dict(self.processor).get(update)

    def words_per_second(self) -> Dict[str, Any]:
        """Return words/s over the steady intervals, or over the best intervals there are.

        ``value`` is words over seconds. ``p90`` is the 90th percentile of the intervals' speeds,
        which is nearer to the undisturbed speed on a busy machine. Both are None without intervals.
        """
        steady = [i for i in self.intervals if i.steady]
        used = steady or [i for i in self.intervals if i.exact] or self.intervals
        used = [i for i in used if i.seconds]
        speeds = sorted(i.words / i.seconds for i in used)
        return {
            "value": sum(i.words for i in used) / sum(i.seconds for i in used) if used else None,
            "p90": speeds[int(0.9 * (len(speeds) - 1))] if used else None,
            "steady": bool(steady),
            "intervals": len(used),
        }

    def curve(self) -> List[Dict[str, Any]]:
        """Return every validation: update, training and processor seconds, logged statistics."""
        return [
            {"update": v.update, **self._times_at(v.update), **v.stats} for v in self.validations
        ]

    def _times_at(self, update: int) -> Dict[str, Optional[float]]:
        processor = self.processor_seconds_at(update)
        known = {} if processor is None else {"processor_seconds": processor}
        return {"seconds": self.seconds_at(update), **known}


def text(log: Path) -> str:
    """All of a log.

    Raises:
        UnreadableLog: if there is none.
    """
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnreadableLog(f"{log.name}: {error.strerror}") from error


def read_training(text: str) -> TrainingLog:
    """Read a training log of one attempt or several.

    Raises:
        UnreadableLog: if it holds no training.
    """
    log = TrainingLog()
    for attempt in text.split(STARTED):
        _add(log, attempt.splitlines())
    if log.parameters is None:
        raise UnreadableLog("the training log holds no 'num. shared model params' line")
    return log


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
    return {
        "ppl": _two_to_the(float(loss.group(1))),
        "tokens": tokens,
        "seconds": tokens / rate if rate else 0.0,
    }


def _add(log: TrainingLog, lines: List[str]) -> None:
    """Add an attempt; remove what it repeats from earlier attempts."""
    resumed = [int(m.group(1)) for m in map(_RESUMED.search, lines) if m]
    parameters = [m.group(1) for m in map(_PARAMETERS.search, lines) if m]
    stats = [(m.group(1), json.loads(m.group(2))) for m in map(_STATS.search, lines) if m]
    if parameters:
        log.parameters = int(parameters[-1].replace(",", ""))
    if not stats:
        return
    start = resumed[0] if resumed else 0
    _add_processor(log, start, lines)
    log.intervals = [i for i in log.intervals if i.last <= start]
    log.validations = [v for v in log.validations if v.update <= start]
    _add_stats(log, start, [(tag, _numbers(found)) for tag, found in stats])


def _add_stats(log: TrainingLog, start: int, stats: List[Tuple[str, Dict[str, float]]]) -> None:
    # fairseq restores the meters of an interval that a checkpoint cut in two: it begins where the
    # last surviving one ended, and may hold the validation before that checkpoint.
    position = log.intervals[-1].last if log.intervals else 0
    exact = start == 0
    for tag, found in stats:
        if tag == "train_inner":
            steady = exact and position >= start + WARM_UP
            log.intervals.append(_interval(position, found, exact, steady))
            position, exact = log.intervals[-1].last, True
        elif "valid_num_updates" in found:
            log.validations.append(_validation(found))
            exact = False


def _add_processor(log: TrainingLog, start: int, lines: List[str]) -> None:
    """Add processor times; time between the last line and a resumed checkpoint does not count."""
    log.processor = [(update, spent) for update, spent in log.processor if update <= start]
    spent = log.processor[-1][1] if log.processor else 0.0
    clock, mark = None, None
    for line in lines:
        if line.startswith(CLOCK):
            clock = float(line[len(CLOCK) :])
            continue
        worked, starts = _WORKED.search(line), _STARTS.search(line)
        if clock is None or not (worked or starts):
            continue
        spent += clock - mark if worked and mark is not None else 0.0
        mark = clock
        log.processor += [(update, spent) for update in _updates(line)]


def _updates(line: str) -> List[int]:
    """Return the update of a line of statistics, if any."""
    found = _STATS.search(line)
    stats = json.loads(found.group(2)) if found else {}
    return [int(stats[name]) for name in ("num_updates", "valid_num_updates") if name in stats]


def _interval(first: int, found: Dict[str, float], exact: bool, steady: bool) -> Interval:
    last = int(found["num_updates"])
    words = found["wpb"] * (last - first)
    # train_wall leaves out validation but is rounded to seconds; wps is exact but counts it in.
    exact = exact and bool(found.get("wps"))
    seconds = words / found["wps"] if exact else found["train_wall"]
    return Interval(first, last, words, seconds, exact, exact and steady)


def _validation(found: Dict[str, float]) -> Validation:
    stats = {name[len("valid_") :]: v for name, v in found.items() if name.startswith("valid_")}
    return Validation(int(stats.pop("num_updates")), stats)


def _numbers(stats: Dict[str, Any]) -> Dict[str, float]:
    """fairseq prints most of its numbers as strings."""
    return {name: float(value) for name, value in stats.items() if value is not None}


def _two_to_the(bits: float) -> float:
    return 2**bits if bits < 1024 else math.inf
