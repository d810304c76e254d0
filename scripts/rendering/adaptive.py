"""Tables of docs/results/adaptive-softmax.md: several files of compare.py --learning-rates.

The label METHOD@RATE is a method with a learning rate. Where several files have a run, the longest
counts. A grid shows all rates after as many updates as all runs have. The other tables show a
method with its best rate: the rate that ends best, among those that were trained for longest.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .cells import PROCESSOR_SPEED, Columns, measured, spread, table

Run = Dict[str, Any]
Key = Tuple[str, str]  # (method, learning rate)
Runs = Dict[Key, List[Run]]  # a run for each seed
METHODS = {
    "softmax": "`cross_entropy`",
    "unigram": "the softmax, from the unigram model",
    "adaptive": "`adaptive_loss`",
    "bnce": "`bnce --row-sparse`",
    "ranking": "the same, `--objective ranking`",
    "adagrad": "`bnce --row-sparse`, Adagrad",
    "random": "`bnce --row-sparse --init-output-bias none`",
    "tied": "`bnce --row-sparse`, embeddings tied",
    "bands": "`bnce --row-sparse`, in bands",
    "tied-random": "the same, `--init-output-bias none`",
}
_SPEED: Columns = (
    PROCESSOR_SPEED,
    ("peak memory, MiB", "peak_mib", ",.0f"),
    ("parameters", "parameters", ",.0f"),
)
_SCORING: Columns = (
    ("test PPL, exact", "test_ppl", ".1f"),
    ("unnormalised, shifted", "test_u_ppl_shifted", ".1f"),
    ("tokens/s, exact", "exact_tokens_per_second", ",.0f"),
    ("tokens/s, unnormalised", "unnormalised_tokens_per_second", ",.0f"),
)


def batches(*comparisons: Dict[str, Any]) -> List[str]:
    """Tabulate the best rate for each size of the batch, after the same number of targets."""
    files: Dict[int, List[Dict[str, Any]]] = {}
    for comparison in comparisons:
        flags = [*comparison["recipe"]["training"], *comparison["flags"]]
        last = dict(zip(flags, flags[1:]))
        size = int(last["--batch-size"]) * int(last["--tokens-per-sample"])
        files.setdefault(size, []).append(comparison)
    sizes = {size: _runs(some) for size, some in sorted(files.items())}
    targets = [size * _common_update(runs) for size, runs in sizes.items()]
    shown = " to ".join(f"{count:,}" for count in dict.fromkeys((min(targets), max(targets))))
    lines = []
    for method in _methods(sizes[min(sizes)]):
        for size, runs in sizes.items():
            update = _common_update(runs)
            best = _best(runs, method, update)
            lines.append([METHODS[method], f"{size:,}", best[1], _at(runs[best], update)])
    titles = [f"after {shown} targets", "targets a batch", "best lr", "validation PPL"]
    return table(titles, lines)


def leaders(*comparisons: Dict[str, Any]) -> List[str]:
    """Tabulate perplexity at equal updates, of every method with its best rate."""
    chosen = _leaders(comparisons)
    updates = _milestones([run for runs in chosen.values() for run in runs])
    titles = ["", "lr", *(f"valid PPL after {update:,} updates" for update in updates)]
    lines = [
        [METHODS[method], rate, *(_at(runs, update) for update in updates)]
        for (method, rate), runs in chosen.items()
    ]
    return table(titles, lines)


def equal_time(*comparisons: Dict[str, Any]) -> List[str]:
    """Tabulate perplexity after processor times that all runs have."""
    chosen = _leaders(comparisons)
    end = min(run["processor_seconds"] for runs in chosen.values() for run in runs)
    lines = [
        [METHODS[method], *(spread((_after(r, t) for r in runs), ".1f") for t in (end / 2, end))]
        for (method, _), runs in chosen.items()
    ]
    return table(["validation PPL after", f"{end / 2:,.0f} s", f"{end:,.0f} s"], lines)


def speed(*comparisons: Dict[str, Any]) -> List[str]:
    """Tabulate speed and memory of the longest runs of every method: their speed is best known."""
    runs, found = _runs(comparisons), {}
    for method in _methods(runs):
        own = [run for key, some in runs.items() if key[0] == method for run in some]
        most = max(run["updates"] for run in own)
        found[method] = [run for run in own if run["updates"] == most]
    return _measured("training", found, _SPEED)


def scoring(*comparisons: Dict[str, Any]) -> List[str]:
    """Tabulate test perplexity and scoring of every method with its best rate, where measured."""
    scored = _runs(comparisons, is_scored=True)
    chosen = {key[0]: scored[key] for key in _leaders(comparisons) if key in scored}
    every = [run for runs in chosen.values() for run in runs]
    columns = [column for column in _SCORING if any(run.get(column[1]) for run in every)]
    return _measured("", chosen, columns)


def _measured(title: str, found: Dict[str, List[Run]], columns: Columns) -> List[str]:
    lines = [
        ([METHODS[name]], {key: [run.get(key) for run in runs] for _, key, _ in columns})
        for name, runs in found.items()
    ]
    return measured([title], columns, lines)


def _runs(comparisons: Iterable[Dict[str, Any]], is_scored: bool = False) -> Runs:
    """Return the longest run of every label and seed, among all runs or the scored ones."""
    longest: Dict[Tuple[str, int], Run] = {}
    for run in (run for comparison in comparisons for run in comparison["runs"]):
        key = (run["label"], run["seed"])
        if "failed" not in run and ("test_ppl" in run or not is_scored):
            longest[key] = max(longest.get(key, run), run, key=lambda one: one["updates"])
    found: Runs = {}
    for (label, _), run in longest.items():
        method, _, rate = label.partition("@")
        found.setdefault((method, rate), []).append(run)
    return found


def _methods(runs: Runs) -> List[str]:
    return [method for method in METHODS if any(key[0] == method for key in runs)]


def _curve(run: Run) -> Dict[int, float]:
    return {point["update"]: point["ppl"] for point in run["train"]["curve"]}


def _common_update(runs: Runs) -> int:
    """Return the last update at which every run was validated."""
    return max(set.intersection(*(set(_curve(run)) for some in runs.values() for run in some)))


def _best(runs: Runs, method: str, update: int) -> Key:
    """Return the key of a method whose first seed is best after so many updates."""
    keys = [key for key in runs if key[0] == method]
    return min(keys, key=lambda key: _curve(runs[key][0]).get(update, math.inf))


def _leaders(comparisons: Sequence[Dict[str, Any]]) -> Runs:
    """Return every method with its best rate, among those that were trained for longest."""
    runs, found = _runs(comparisons), {}
    for method in _methods(runs):
        most = max(some[0]["updates"] for key, some in runs.items() if key[0] == method)
        best = _best(runs, method, most)
        found[best] = runs[best]
    return found


def _milestones(runs: Sequence[Run]) -> List[int]:
    """Return the last updates, validated in all runs, within a quarter, a half and all of a run."""
    known = set.intersection(*(set(_curve(run)) for run in runs))
    wanted = [max(_curve(run)) // part for run in runs for part in (4, 2, 1)]
    return sorted({max(u for u in known if u <= most) for most in wanted if most >= min(known)})


def _at(runs: Sequence[Run], update: int) -> str:
    """Return the perplexity after so many updates."""
    return spread((_curve(run).get(update) for run in runs), ".1f")


def _after(run: Run, seconds: float) -> Optional[float]:
    """Return the perplexity after a processor time; its logarithm is interpolated linearly."""
    points = [(p["processor_seconds"], math.log(p["ppl"])) for p in run["train"]["curve"]]
    for (x, left), (y, right) in zip(points, points[1:]):
        if x <= seconds <= y:
            return math.exp(left + (right - left) * (seconds - x) / (y - x))
    return None
