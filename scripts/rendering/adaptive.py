"""Tables of docs/adaptive-softmax.md: what compare.py --learning-rates found, in several files.

A label METHOD@RATE is a method with a learning rate; where a run is in several files, the longest
counts. A grid shows all rates after as many updates as all runs have; the other tables show a
method with the rate that ends best, of those that it was trained with for longest.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .cells import Columns, spread, table

Run = Dict[str, Any]
METHODS = {
    "softmax": "`cross_entropy`",
    "unigram": "the softmax, from the unigram model",
    "adaptive": "`adaptive_loss`",
    "bnce": "`bnce --row-sparse`",
    "ranking": "the same, `--objective ranking`",
    "random": "`bnce --row-sparse --init-output-bias none`",
    "tied": "`bnce --row-sparse`, embeddings tied",
    "tied-random": "the same, `--init-output-bias none`",
}
_SPEED: Columns = (
    ("updates", "updates", ",.0f"),
    ("words/s", "words_per_second", ",.0f"),
    ("words/processor s", "words_per_processor_second", ",.0f"),
    ("peak memory, MiB", "peak_mib", ",.0f"),
    ("parameters", "parameters", ",.0f"),
)
_SCORING: Columns = (
    ("test PPL, exact", "test_ppl", ".1f"),
    ("unnormalised, shifted", "test_u_ppl_shifted", ".1f"),
    ("σ_z", "sigma_z", ".3f"),
    ("tokens/s, exact", "exact_tokens_per_second", ",.0f"),
    ("tokens/s, unnormalised", "unnormalised_tokens_per_second", ",.0f"),
    ("right, exact, %", "accuracy", ".1f"),
    ("right, unnormalised, %", "u_accuracy", ".1f"),
    ("choices that differ, %", "choices_that_differ", ".1f"),
)


def grid(*comparisons: Dict[str, Any]) -> List[str]:
    """Validation perplexity of every method with every learning rate, the best one bold."""
    runs = _runs(comparisons)
    rates = _rates(runs)
    titles = [f"validation PPL after {_common_update(runs):,} updates, lr", *rates]
    return table(titles, [[METHODS[name], *_by_rate(runs, name, rates)] for name in _methods(runs)])


def batches(*comparisons: Dict[str, Any]) -> List[str]:
    """:func:`grid` for several sizes of the batch, a file or more each, after as many targets."""
    sizes, targets = _by_batch(comparisons)
    titles = [f"validation PPL after {targets} targets", "targets a batch"]
    rates = _rates(label for runs in sizes.values() for label in runs)
    titles += [f"lr {rate}" for rate in rates]
    methods = _methods(next(iter(sizes.values())))
    lines = [
        [METHODS[method], f"{size:,}", *_by_rate(runs, method, rates)]
        for method in methods
        for size, runs in sizes.items()
    ]
    return table(titles, lines)


def best_of_batches(*comparisons: Dict[str, Any]) -> List[str]:
    """Of :func:`batches`, each method's best learning rate and what it gives."""
    sizes, _ = _by_batch(comparisons)
    titles = ["best validation PPL (lr), by targets a batch"]
    lines = []
    for method in _methods(next(iter(sizes.values()))):
        best = [(runs, _best(runs, method), _common_update(runs)) for runs in sizes.values()]
        cells = [f"{_shown([_at(runs[b][0], at)])} ({_rate(b)})" for runs, b, at in best]
        lines.append([METHODS[method], *cells])
    return table([*titles, *(f"{size:,}" for size in sizes)], lines)


def _by_batch(comparisons: Sequence[Dict[str, Any]]) -> Tuple[Dict[int, Dict[str, List[Run]]], str]:
    """(runs by targets a batch, how many targets they were trained on, about as many all)."""
    found: Dict[int, List[Dict[str, Any]]] = {}
    for comparison in comparisons:
        found.setdefault(_batch_targets(comparison), []).append(comparison)
    sizes = {size: _runs(some) for size, some in found.items()}
    targets = sorted({size * _common_update(runs) for size, runs in sizes.items()})
    if targets[-1] > 1.01 * targets[0]:
        raise ValueError(f"the files' runs must have as many targets, but have {targets}")
    ends = dict.fromkeys((targets[0], targets[-1]))
    return dict(sorted(sizes.items())), " to ".join(f"{count:,}" for count in ends)


def _batch_targets(comparison: Dict[str, Any]) -> int:
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    last = dict(zip(flags, flags[1:]))
    return int(last["--batch-size"]) * int(last["--tokens-per-sample"])


def _by_rate(runs: Dict[str, List[Run]], method: str, rates: Sequence[str]) -> List[str]:
    update, best = _common_update(runs), _best(runs, method)
    labels = [f"{method}@{rate}" for rate in rates]
    found = [_shown([_at(one, update) for one in runs.get(label, [])]) for label in labels]
    return [f"**{text}**" if label == best else text for label, text in zip(labels, found)]


def _rates(labels: Iterable[str]) -> List[str]:
    return sorted({_rate(label) for label in labels}, key=float)


def leaders(*comparisons: Dict[str, Any]) -> List[str]:
    """Every method with its best rate: perplexity at equal updates."""
    chosen = _leaders(comparisons)
    updates = _milestones(chosen)
    titles = ["", "lr", *(f"valid PPL after {update:,} updates" for update in updates)]
    lines = []
    for label, runs in chosen.items():
        found = [_shown([_at(run, update) for run in runs]) for update in updates]
        lines.append([METHODS[_method(label)], _rate(label), *found])
    return table(titles, lines)


def equal_time(*comparisons: Dict[str, Any]) -> List[str]:
    """Perplexity after so much processor time of training, of which all had at least as much."""
    chosen = _leaders(comparisons)
    times = [_end(chosen) / 2, _end(chosen)]
    titles = ["validation PPL after", *(f"{time:,.0f} s" for time in times)]
    lines = [
        [METHODS[_method(label)], *(_shown([_after(run, time) for run in runs]) for time in times)]
        for label, runs in chosen.items()
    ]
    return table(titles, lines)


def overview(*comparisons: Dict[str, Any]) -> List[str]:
    """README.md's table: a line a method, with its best rate."""
    chosen = _leaders(comparisons)
    update, end = _common_update(chosen), _end(chosen)
    titles = ["", f"valid PPL after {update:,} updates", f"after {end:,.0f} s of processor time"]
    titles += ["words/processor s", "peak memory, MiB", "scoring tokens/s, exact → unnormalised"]
    titles += ["sentence completion, % right, exact / unnormalised"]
    lines = [
        [
            METHODS[_method(label)],
            _shown([_at(run, update) for run in runs]),
            _shown([_after(run, end) for run in runs]),
            *_values(_longest(runs), _SPEED[2:4]),
            _pair(comparisons, label, _SCORING[3:5], " → "),
            _pair(comparisons, label, _SCORING[5:7], " / "),
        ]
        for label, runs in chosen.items()
    ]
    return table(titles, lines)


def _pair(comparisons: Sequence[Dict[str, Any]], label: str, columns: Columns, sign: str) -> str:
    """Of the runs that were scored, which need not be the longest."""
    return sign.join(_values(_runs(comparisons, is_scored=True).get(label, []), columns))


def speed(*comparisons: Dict[str, Any]) -> List[str]:
    """Speed and memory of every method, of its longest runs."""
    runs = _runs(comparisons)
    lines = []
    for method in _methods(runs):
        own = [run for label, some in runs.items() if _method(label) == method for run in some]
        lines.append([METHODS[method], *_values(_longest(own), _SPEED)])
    return table(["training", *(title for title, _, _ in _SPEED)], lines)


def scoring(*comparisons: Dict[str, Any]) -> List[str]:
    """Every method with its best rate: test perplexity and scoring, where it was measured."""
    runs = _runs(comparisons, is_scored=True)
    chosen = {label: runs.get(label, []) for label in _leaders(comparisons)}
    columns = [c for c in _SCORING if any(_known(runs, c[1]) for runs in chosen.values())]
    lines = [
        [METHODS[_method(label)], f"{runs[0]['updates']:,}", *_values(runs, columns)]
        for label, runs in chosen.items()
        if runs
    ]
    return table(["", "updates", *(title for title, _, _ in columns)], lines)


def _runs(comparisons: Sequence[Dict[str, Any]], is_scored: bool = False) -> Dict[str, List[Run]]:
    """The longest run of every label and seed, of all or of those that were scored."""
    longest: Dict[Tuple[str, int], Run] = {}
    for run in (run for comparison in comparisons for run in comparison["runs"]):
        key, fits = (run["label"], run["seed"]), "test_ppl" in run or not is_scored
        if "failed" not in run and fits and _length(run) > _length(longest.get(key)):
            longest[key] = run
    found: Dict[str, List[Run]] = {}
    for (label, _), run in longest.items():
        found.setdefault(label, []).append(run)
    return found


def _length(run: Optional[Run]) -> int:
    return 0 if run is None else run["updates"]


def _longest(runs: Sequence[Run]) -> List[Run]:
    """Those that no other one outlasts: of them speed is best known."""
    most = max(map(_length, runs))
    return [run for run in runs if _length(run) == most]


def _common_update(runs: Dict[str, List[Run]]) -> int:
    """The last update at which every run was validated."""
    shared = [
        {p["update"] for p in one["train"]["curve"]} for some in runs.values() for one in some
    ]
    return max(set.intersection(*shared))


def _methods(runs: Dict[str, List[Run]]) -> List[str]:
    there = {_method(label) for label in runs}
    return [method for method in METHODS if method in there]


def _best(runs: Dict[str, List[Run]], method: str) -> str:
    """The label of the method whose first seed is best after the updates that all have."""
    update = _common_update(runs)
    labels = [label for label in runs if _method(label) == method]
    return min(labels, key=lambda label: _at(runs[label][0], update) or math.inf)


def _leaders(comparisons: Sequence[Dict[str, Any]]) -> Dict[str, List[Run]]:
    runs = _runs(comparisons)
    return {label: runs[label] for label in (_leader(runs, method) for method in _methods(runs))}


def _leader(runs: Dict[str, List[Run]], method: str) -> str:
    """The label of the method that ends best, of those that were trained for longest."""
    labels = [label for label in runs if _method(label) == method]
    longest = max(_length(runs[label][0]) for label in labels)
    ends = {label: _at(runs[label][0], longest) or math.inf for label in labels}
    return min(ends, key=lambda label: ends[label])


def _end(chosen: Dict[str, List[Run]]) -> float:
    """Processor seconds that every run took at least, so that all seeds are in a mean."""
    return min(run["processor_seconds"] for runs in chosen.values() for run in runs)


def _milestones(chosen: Dict[str, List[Run]]) -> List[int]:
    """Updates to show: the last validated ones within a quarter, a half and all of a run."""
    curves = [run["train"]["curve"] for runs in chosen.values() for run in runs]
    known = {point["update"] for curve in curves for point in curve}
    ends = {curve[-1]["update"] for curve in curves}
    wanted = [most for end in ends for most in (end // 4, end // 2, end)]
    within = [[update for update in known if update <= most] for most in wanted]
    return sorted({max(updates) for updates in within if updates})


def _at(run: Run, update: int) -> Optional[float]:
    found = [point["ppl"] for point in run["train"]["curve"] if point["update"] == update]
    return found[0] if found else None


def _after(run: Run, seconds: float) -> Optional[float]:
    """Perplexity after so much processor time; its logarithm is interpolated linearly."""
    points = [(p["processor_seconds"], math.log(p["ppl"])) for p in run["train"]["curve"]]
    for (x, left), (y, right) in zip(points, points[1:]):
        if x <= seconds <= y:
            return math.exp(left + (right - left) * (seconds - x) / (y - x))
    return None


def _values(runs: Sequence[Run], columns: Columns) -> List[str]:
    return [_shown(_known(runs, name), form) for _, name, form in columns]


def _known(runs: Sequence[Run], name: str) -> List[float]:
    return [run[name] for run in runs if run.get(name) is not None]


def _shown(values: Sequence[Optional[float]], form: str = ".1f") -> str:
    known = [value for value in values if value is not None]
    if len(set(known)) == 1:  # as updates, which are no measurement, are in all runs
        return spread(known[:1], form)
    return spread(known, form)


def _method(label: str) -> str:
    return label.partition("@")[0]


def _rate(label: str) -> str:
    return label.partition("@")[2]
