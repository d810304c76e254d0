"""From the runs to the numbers of the report: each run's own, the growth with V, and the claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .runs import Outcome
from .systems import SOFTMAX

Numbers = Dict[str, Optional[float]]
_SUBJECT = "bnce_sparse"
_MIB = 2**20


@dataclass(frozen=True)
class Row:
    """One run and its numbers, by the names that tables and JSON know them by."""

    outcome: Outcome
    numbers: Numbers

    @property
    def system(self) -> str:
        return self.outcome.system.name

    @property
    def vocab(self) -> int:
        return self.outcome.vocab


@dataclass(frozen=True)
class Claim:
    """Something that the benchmark is to show.

    Attributes:
        found: None where a run that it needs is missing.
        required: how ``found`` has to be.
    """

    text: str
    found: Optional[float]
    required: str
    is_met: Optional[bool]


def rows(outcomes: Sequence[Outcome]) -> List[Row]:
    """A row a run, with ratios to the others at the same V."""
    own = {(o.system.name, o.vocab): _own(o) for o in outcomes}
    return [Row(o, {**own[o.system.name, o.vocab], **_ratios(o, own)}) for o in outcomes]


def exponent(points: Sequence[Tuple[float, Optional[float]]]) -> Optional[float]:
    """The b of cost = a V^b by least squares on logarithms; None for less than two sizes.

    Args:
        points: (V, cost); those without a cost are left out.
    """
    known = [(math.log(vocab), math.log(cost)) for vocab, cost in points if cost]
    if len({x for x, _ in known}) < 2:
        return None
    mean_x = sum(x for x, _ in known) / len(known)
    mean_y = sum(y for _, y in known) / len(known)
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in known)
    return covariance / sum((x - mean_x) ** 2 for x, _ in known)


def growth(found: Sequence[Row]) -> Dict[str, Numbers]:
    """For each system, what V does to it, from its smallest V to its largest one."""
    return {
        system: {
            "update_exponent": _exponent(found, system, "update_ms"),
            "layer_exponent": _exponent(found, system, "layer_ms"),
            "speed_kept": _end_ratio(found, system, "words_per_second"),
            "memory_growth": _end_ratio(found, system, "update_mib"),
        }
        for system in dict.fromkeys(row.system for row in found)
    }


def claims(found: Sequence[Row]) -> List[Claim]:
    """What row-sparse B-NCE is to show, at the vocabularies that were measured."""
    vocabs = sorted({row.vocab for row in found})
    small, large = vocabs[0], vocabs[-1]
    against = 200_000 if 200_000 in vocabs else large
    speed = {(r.system, r.vocab): r.numbers.get("words_per_second") for r in found}
    own = growth(found).get(_SUBJECT, {})
    dense, softmax = ((name, v) for name, v in (("bnce", large), (SOFTMAX, against)))
    span = f"V = {large:,} over V = {small:,}"
    return [
        _at_least(f"words/s of {_SUBJECT}, {span}", own.get("speed_kept"), 0.8),
        _at_least(
            f"words/s of {_SUBJECT} over bnce, V = {large:,}",
            _ratio(speed.get((_SUBJECT, large)), speed.get(dense)),
            30,
        ),
        _at_least(
            f"words/s of {_SUBJECT} over {SOFTMAX}, V = {against:,}",
            _ratio(speed.get((_SUBJECT, against)), speed.get(softmax)),
            50,
        ),
        _below(f"exponent of {_SUBJECT}'s cost in V", own.get("update_exponent"), 0.05),
        _within(f"memory of an update of {_SUBJECT}, {span}", own.get("memory_growth"), 0.05),
    ]


def _own(outcome: Outcome) -> Numbers:
    values = {part: stored["value"] for part, stored in outcome.parts.items()}
    found: Numbers = {}
    if "train" in values:
        found.update(values["train"])
        ended = outcome.parts["train"]["ended"]
        found["process_mib"] = ended["peak_bytes"] / _MIB
        cpu_seconds = ended.get("cpu_seconds")
        found["cpu_share"] = 100 * cpu_seconds / ended["seconds"] if cpu_seconds else None
    if "update" in values:
        found.update(_update(values["update"]))
    if "layer" in values:
        found["layer_ms"] = values["layer"]["ms"]
        found["layer_calls"] = values["layer"]["calls"]
        found["layer_mib"] = values["layer"]["peak_bytes"] / _MIB
    return found


def _update(value: Dict[str, Any]) -> Numbers:
    phases = {f"{name}_phase_ms": ms for name, ms in value["milliseconds"].items()}
    return {
        **phases,
        "phases_ms": value["update_ms"],
        "update_mib": value["peak_bytes"] / _MIB,
        "parameters_mib": value["parameter_bytes"] / _MIB,
        "state_mib": value["state_bytes"] / _MIB,
        "distinct_targets": value["distinct_targets"],
    }


def _ratios(outcome: Outcome, own: Dict[Tuple[str, int], Numbers]) -> Numbers:
    system, vocab = outcome.system, outcome.vocab
    found = own[system.name, vocab]
    softmax = own.get((SOFTMAX, vocab), {})
    dense = own.get((system.dense or "", vocab), {})
    return {
        "x_softmax": _over(found, softmax, "words_per_second"),
        "x_dense": _over(found, dense, "words_per_second"),
        "layer_x_softmax": _over(softmax, found, "layer_ms"),
        "layer_x_dense": _over(dense, found, "layer_ms"),
    }


def _exponent(found: Sequence[Row], system: str, name: str) -> Optional[float]:
    return exponent([(r.vocab, r.numbers.get(name)) for r in found if r.system == system])


def _end_ratio(found: Sequence[Row], system: str, name: str) -> Optional[float]:
    """The number at the largest V that has been measured at all, over that at the smallest."""
    vocabs = [row.vocab for row in found]
    values = {r.vocab: r.numbers.get(name) for r in found if r.system == system}
    if max(vocabs) == min(vocabs):
        return None
    return _ratio(values.get(max(vocabs)), values.get(min(vocabs)))


def _over(above: Numbers, below: Numbers, name: str) -> Optional[float]:
    return _ratio(above.get(name), below.get(name))


def _ratio(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above is not None and below else None


def _at_least(text: str, found: Optional[float], bound: float) -> Claim:
    return Claim(text, found, f"at least {bound:g}", None if found is None else found >= bound)


def _below(text: str, found: Optional[float], bound: float) -> Claim:
    return Claim(text, found, f"below {bound:g}", None if found is None else found < bound)


def _within(text: str, found: Optional[float], share: float) -> Claim:
    is_met = None if found is None else abs(found - 1) <= share
    return Claim(text, found, f"{1 - share:g} to {1 + share:g}", is_met)
