"""Read what train.py (``--log-format json``) and fairseq-eval-lm print."""

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


class Point(NamedTuple):
    """What was trained up to an update.

    Attributes:
        words: training targets.
        seconds, processor_seconds: without start-up, validation and saving.
    """

    update: int = 0
    words: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0


class TrainingLog(NamedTuple):
    """What a training logged.

    Attributes:
        points: of the updates that it logged numbers of.
        curve: every validation: update, seconds and processor seconds of training, and the
            statistics as fairseq logs them (ppl, u_ppl, ...).
    """

    points: Dict[int, Point]
    curve: List[Dict[str, Any]]
    parameters: int

    def words_per_second(self) -> Optional[float]:
        """Return words/s after the warm-up, or of all updates if no point comes after it."""
        points = [Point(), *self.points.values()]
        warm = [point for point in points if point.update >= WARM_UP]
        first, last = (warm if len(warm) > 1 else points)[0], points[-1]
        return (last.words - first.words) / (last.seconds - first.seconds) if last.update else None


def read_training(log: Path) -> TrainingLog:
    """Read the log of a training.

    Raises:
        CommandFailed: if it holds no training.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    parameters = _PARAMETERS.search(text)
    if parameters is None:
        raise CommandFailed(f"{log.name} holds no 'num. shared model params' line")
    found, point = TrainingLog({}, [], int(parameters[1].replace(",", ""))), Point()
    for line in text.splitlines():
        if line.startswith(CLOCK):
            point = Point(*json.loads(line[len(CLOCK) :]))
        logged = _STATS.search(line)
        if logged:
            found.points[point.update] = point
        if logged and logged[1].startswith("valid"):
            # fairseq prints numbers as strings.
            known = {k: float(v) for k, v in json.loads(logged[2]).items() if v is not None}
            own = {k[len("valid_") :]: v for k, v in known.items() if k.startswith("valid_")}
            own.pop("num_updates", None)
            found.curve.append({**point._asdict(), **own})
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
