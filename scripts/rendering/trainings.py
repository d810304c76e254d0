"""Tables of several files of compare.py, which may stand beside those of bench peers.

The label METHOD@RATE is a method with a learning rate. Where several files have a run, the longest
counts. Tables show a method with its best rate: the rate that ends best, among those that were
trained for longest.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from .cells import NAMES, Line, measured

Json = Dict[str, Any]
Key = Tuple[str, str]  # (method, learning rate)
Runs = Dict[Key, List[Json]]  # a run for each seed
Points = Sequence[Tuple[float, float]]  # seconds of training, perplexity
METHODS, OPTIMIZERS, RECIPES = (NAMES[key] for key in ("methods", "optimizers", "recipes"))
_AFTER = "runs/train/curve/update=%d/ppl"


def batches(*comparisons: Json) -> List[str]:
    """Tabulate the best rate for each size of the batch, after the same number of targets."""
    files: Dict[int, List[Json]] = {}
    for comparison in comparisons:
        files.setdefault(_targets(comparison), []).append(comparison)
    sizes = {size: _runs(some) for size, some in sorted(files.items())}
    last = {size: max(_common(sum(runs.values(), []))) for size, runs in sizes.items()}
    lines = []
    for method in _methods(sizes[min(sizes)]):
        for size, runs in sizes.items():
            best = _best(runs, method, last[size])
            end = [point["ppl"] for run in runs[best] for point in _curve(run, last[size])]
            lines.append(([METHODS[method]], {"size": size, "rate": best[1], "end": end}))
    targets = [size * update for size, update in last.items()]
    shown = " to ".join(f"{count:,}" for count in dict.fromkeys((min(targets), max(targets))))
    columns = [("targets a batch", "size", ","), ("best lr", "rate", "")]
    columns += [("validation PPL", "end", ".1f")]
    return measured([f"after {shown} targets"], columns, lines)


def leaders(*comparisons: Json) -> List[str]:
    """Tabulate perplexity at equal updates, of every method with its best rate."""
    chosen = _leaders(comparisons)
    updates = _milestones(sum(chosen.values(), []))
    columns = [(f"valid PPL after {one:,} updates", _AFTER % one, ".1f") for one in updates]
    lines = [([METHODS[method]], {"lr": lr, "runs": runs}) for (method, lr), runs in chosen.items()]
    return measured([""], [("lr", "lr", ""), *columns], lines)


def equal_time(*comparisons: Json) -> List[str]:
    """Tabulate perplexity after processor times that all runs have."""
    chosen = _leaders(comparisons)
    end = min(run["processor_seconds"] for runs in chosen.values() for run in runs)
    columns = [(f"{time:,.0f} s", str(time), ".1f") for time in (end / 2, end)]
    lines = [
        (
            [METHODS[method]],
            {at: [_after(_times(r), float(at)) for r in runs] for _, at, _ in columns},
        )
        for (method, _), runs in chosen.items()
    ]
    return measured(["validation PPL after"], columns, lines)


def longest(*comparisons: Json) -> Iterator[Line]:
    """Yield the longest runs of every method: their speed is best known."""
    runs = _runs(comparisons)
    for method in _methods(runs):
        own = [run for key, some in runs.items() if key[0] == method for run in some]
        most = max(run["updates"] for run in own)
        yield [METHODS[method]], {"runs": [run for run in own if run["updates"] == most]}


def scored(*comparisons: Json) -> Iterator[Line]:
    """Yield the scored runs of every method with its best rate."""
    found = _runs(comparisons, is_scored=True)
    for key in _leaders(comparisons):
        if key in found:
            yield [METHODS[key[0]]], {"runs": found[key]}


def optimizers(*comparisons: Json) -> Iterator[Line]:
    """Yield runs by optimiser, targets a batch and learning rate."""
    for comparison in comparisons:
        for run in comparison["runs"]:
            name, _, rate = run["label"].partition("@")
            yield [OPTIMIZERS[name], f"{_targets(comparison):,}", rate], run


def rates(*comparisons: Json) -> Iterator[Line]:
    """Yield runs by model, --lr and --dense-lr-scale; a label is RATExSCALE."""
    for comparison in comparisons:
        model = RECIPES[comparison["recipe"]["name"]]
        for run in comparison["runs"]:
            yield [model, *run["label"].split("x")], run


def _targets(comparison: Json) -> int:
    """Return the targets of a batch."""
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    last = dict(zip(flags, flags[1:]))  # of a flag given twice, the last one counts
    return int(last["--batch-size"]) * int(last["--tokens-per-sample"])


def _runs(comparisons: Sequence[Json], is_scored: bool = False) -> Runs:
    """Return the longest run of every label and seed, among all runs or the scored ones."""
    longest: Dict[Tuple[str, int], Json] = {}
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


def _curve(run: Json, update: int) -> List[Json]:
    """Return the validation after so many updates, if there was one."""
    return [point for point in run["train"]["curve"] if point["update"] == update]


def _common(runs: Sequence[Json]) -> Set[int]:
    """Return the updates at which every run was validated."""
    return set.intersection(*({point["update"] for point in run["train"]["curve"]} for run in runs))


def _best(runs: Runs, method: str, update: int) -> Key:
    """Return the key of a method whose first seed is best after so many updates."""

    def end(key: Key) -> float:
        return next((point["ppl"] for point in _curve(runs[key][0], update)), math.inf)

    return min((key for key in runs if key[0] == method), key=end)


def _leaders(comparisons: Sequence[Json]) -> Runs:
    """Return every method with its best rate, among those that were trained for longest."""
    runs, found = _runs(comparisons), {}
    for method in _methods(runs):
        most = max(some[0]["updates"] for key, some in runs.items() if key[0] == method)
        best = _best(runs, method, most)
        found[best] = runs[best]
    return found


def _milestones(runs: Sequence[Json]) -> List[int]:
    """Return the last updates, validated in all runs, within a quarter, a half and all of a run."""
    known = _common(runs)
    wanted = [run["train"]["curve"][-1]["update"] // part for run in runs for part in (4, 2, 1)]
    return sorted({max(u for u in known if u <= most) for most in wanted if most >= min(known)})


def _times(run: Json) -> Points:
    return [(point["processor_seconds"], point["ppl"]) for point in run["train"]["curve"]]


def _after(points: Points, seconds: float) -> Optional[float]:
    """Return the perplexity after a processor time; its logarithm is interpolated linearly."""
    for (x, left), (y, right) in zip(points, points[1:]):
        if x <= seconds <= y:
            return left * (right / left) ** ((seconds - x) / (y - x))
    return None


# ---------------------------------------------------------------- peers

LIMITS = (60, 120, 300, 600)  # seconds of training
_PEERS = {**METHODS, **NAMES["peers"]}


def peers(*files: Json) -> Iterator[Line]:
    """Yield fairseq's models and those of other programs: perplexities of a word, and costs."""
    tokens: Dict[str, int] = {}
    for file in files:
        tokens.update(file.get("tokens", {}))
    for file in files:
        for run in file.get("runs", []):
            label = run["label"].partition("@")[0]
            pieces = [count for name, count in tokens.items() if name.endswith(f"-{label}")]
            ratio = pieces[0] / tokens["words"] if pieces else 1.0  # pieces of a word
            points = [(seconds, ppl**ratio) for seconds, ppl in _times(run)]
            costs = {"peak": run["peak_mib"] * 2**20, "disk": 4 * run["parameters"]}
            for way in ("exact", "unnormalised"):
                speed = run.get(f"{way}_tokens_per_second")
                costs[way] = speed and speed / ratio
            yield [_PEERS[label]], {**costs, **_limits(points)}
        for name, found in file.get("systems", {}).items():
            points = [(point["seconds"], point["ppl"]) for point in found.get("curve", [])]
            points = points or [(found["seconds"], found["valid_ppl"])]
            costs = {"peak": found["peak_bytes"], "disk": found["disk_bytes"]}
            way = "unnormalised" if name.endswith("NCE") else "exact"
            costs[way] = found["words_per_processor_second"]
            yield [_PEERS.get(name, name)], {**costs, **_limits(points)}


def _limits(points: Points) -> Dict[str, Optional[float]]:
    """Return the perplexity after each time; the last one of a finished model."""
    last, ppl = points[-1]
    return {str(s): _after(points, s) or (ppl if last < s else None) for s in LIMITS}


def mixtures(*files: Json) -> Iterator[Line]:
    """Yield networks of compare.py mixed with KenLM, by text and updates."""
    lines: Dict[str, Json] = {}
    for file in files:
        for way, title in NAMES["ways"].items():
            for run in (run for run in file["mixtures"] if way in run):
                start = NAMES["starts"][run["label"].partition("@")[0]]
                label = (
                    f"{NAMES['texts'][file['text']]}, {title}, {run['updates']:,} updates{start}"
                )
                row = lines.setdefault(label, {"runs": [], "valid": []})
                row["runs"].append(run)
                row["valid"].append(run[way]["valid"])
    return (([label], row) for label, row in lines.items())


def unnormalised_mixtures(*files: Json) -> Iterator[Line]:
    """Yield those of :func:`mixtures` whose network normalises itself."""
    return (line for line in mixtures(*files) if "unnormalised" in line[1]["valid"][0])
