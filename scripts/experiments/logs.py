"""Read what fairseq-train (``--log-format json``) and fairseq-eval-lm print."""

import json
import math
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from .processes import CommandFailed
from .train import CLOCK

WARM_UP = 100  # first updates, which are not timed: caches, allocator, CPU frequency
_STATS = re.compile(r"\| INFO \| (\w+) \| (\{.*\})\s*$")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_EVALUATED = re.compile(r"Evaluated ([\d,]+) tokens in [\d.]+s \(([\d.]+) tokens/s\)")
_SKIPPED = re.compile(r"([\d,]+) samples have invalid sizes and will be skipped")
_LOSS = re.compile(r"Loss \(base 2\): (\S+), Perplexity")
# Messages up to which it trained, and messages after which it trains (again).
_WORKED = re.compile(r"\| train(_inner)? \| \{|begin validation on|Preparing to save checkpoint")
_STARTS = re.compile(r"\| valid\w* \| \{|Saved checkpoint|Start iterating over samples")


class Interval(NamedTuple):
    """One train_inner line.

    Attributes:
        first, last: the updates that it spans, ``first`` not included.
        words: training targets.
        seconds: the time they took, validation left out.
        steady: past the warm-up, and without a validation.
    """

    first: int
    last: int
    words: float
    seconds: float
    steady: bool


class TrainingLog(NamedTuple):
    """What a training logged.

    Attributes:
        validations: the update and the statistics as fairseq logs them (ppl, u_ppl, ...).
        processor: processor seconds up to an update, without validation and saving.
    """

    intervals: List[Interval]
    validations: List[Dict[str, Any]]
    parameters: int
    processor: Dict[int, float]

    def words_per_second(self) -> Optional[float]:
        """Return words/s over the steady intervals, or over all if none is steady."""
        steady = [i for i in self.intervals if i.steady]
        used = [i for i in steady or self.intervals if i.seconds]
        return sum(i.words for i in used) / sum(i.seconds for i in used) if used else None

    def curve(self) -> List[Dict[str, Any]]:
        """Return every validation: update, training and processor seconds, logged statistics."""
        found = []
        for point in self.validations:
            update = point["update"]
            times = {"seconds": self.up_to(update, "seconds")}
            if update in self.processor:
                times["processor_seconds"] = self.processor[update]
            found.append({**times, **point})
        return found

    def up_to(self, update: int, name: str) -> Optional[float]:
        """Sum a number of the intervals; past the last line, at the pace of its interval."""
        spans = [i for i in self.intervals if i.first < update]
        if not spans:
            return None
        last = spans[-1]
        share = (update - last.first) / (last.last - last.first)
        return sum(getattr(i, name) for i in spans[:-1]) + share * getattr(last, name)


def read_training(log: Path, warm_up: int = WARM_UP) -> TrainingLog:
    """Read the log of a training.

    Raises:
        CommandFailed: if it holds no training.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    parameters = _PARAMETERS.search(text)
    if parameters is None:
        raise CommandFailed(f"{log.name} holds no 'num. shared model params' line")
    found = TrainingLog([], [], int(parameters[1].replace(",", "")), {})
    position, exact = 0, True
    spent = clock = mark = 0.0  # processor seconds: of training alone, now, at the last mark
    for line in text.splitlines():
        if line.startswith(CLOCK):
            clock = float(line[len(CLOCK) :])
            continue
        if clock and (_WORKED.search(line) or _STARTS.search(line)):
            spent += clock - mark if _WORKED.search(line) and mark else 0.0
            mark = clock
        logged = _STATS.search(line)
        if logged is None:
            continue
        # fairseq prints numbers as strings.
        known = json.loads(logged[2]).items()
        stats = {name: float(value) for name, value in known if value is not None}
        if logged[1] == "train_inner":
            last = int(stats["num_updates"])
            words = stats["wpb"] * (last - position)
            # train_wall leaves out validation but is rounded to seconds; wps is exact but has it.
            exact = exact and bool(stats.get("wps"))
            seconds = words / stats["wps"] if exact else stats["train_wall"]
            steady = exact and position >= warm_up
            found.intervals.append(Interval(position, last, words, seconds, steady))
            position, exact = last, True
        elif "valid_num_updates" in stats:
            own = {k[len("valid_") :]: v for k, v in stats.items() if k.startswith("valid_")}
            found.validations.append({"update": int(own.pop("num_updates")), **own})
            exact = False
        for name in {"num_updates", "valid_num_updates"} & set(stats if clock else ()):
            found.processor[int(stats[name])] = spent
    return found


def read_scoring(lines: Iterable[str]) -> Dict[str, float]:
    """Return perplexity, tokens and seconds from the output of fairseq-eval-lm.

    Raises:
        CommandFailed: without a result, or if the result leaves out a part of the data.
    """
    text = "\n".join(lines)
    evaluated, loss, skipped = (one.search(text) for one in (_EVALUATED, _LOSS, _SKIPPED))
    if skipped:  # it would go on, down to a perplexity of 1.00 over 0 tokens
        raise CommandFailed(f"fairseq-eval-lm skipped {skipped.group(1)} blocks as too long")
    if not evaluated or not loss:
        raise CommandFailed("fairseq-eval-lm printed no 'Evaluated ... tokens' or 'Loss' line")
    tokens, rate = int(evaluated.group(1).replace(",", "")), float(evaluated.group(2))
    # From the loss: the printed perplexity has two decimals, too few for one below 1. The seconds
    # come from the rate, since eval-lm rounds its own to tenths.
    bits = float(loss.group(1))
    ppl = 2**bits if bits < 1024 else math.inf
    return {"ppl": ppl, "tokens": tokens, "seconds": tokens / rate if rate else 0.0}
