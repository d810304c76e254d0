"""Tables of several files of compare.py, which may stand beside those of bench peers.

The label METHOD@RATE is a method with a learning rate. Where several files have a run, the longest
counts. Tables show a method with its best rate: the rate that ends best, among those that were
trained for longest.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from .cells import NAMES, Line, measured, spread, table

Json = Dict[str, Any]
Key = Tuple[str, str]  # (method, learning rate)
Runs = Dict[Key, List[Json]]  # a run for each seed
Points = Sequence[Tuple[float, float]]  # seconds of training, perplexity
METHODS, OPTIMIZERS = NAMES["methods"], NAMES["optimizers"]


def batches(*comparisons: Json) -> List[str]:
    """Tabulate the best rate for each size of the batch, after the same number of targets."""
    files: Dict[int, List[Json]] = {}
    for comparison in comparisons:
        files.setdefault(_targets(comparison), []).append(comparison)
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


def leaders(*comparisons: Json) -> List[str]:
    """Tabulate perplexity at equal updates, of every method with its best rate."""
    chosen = _leaders(comparisons)
    updates = _milestones([run for runs in chosen.values() for run in runs])
    titles = ["", "lr", *(f"valid PPL after {update:,} updates" for update in updates)]
    lines = [
        [METHODS[method], rate, *(_at(runs, update) for update in updates)]
        for (method, rate), runs in chosen.items()
    ]
    return table(titles, lines)


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


def _targets(comparison: Json) -> int:
    """Return the targets of a batch."""
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    last = dict(zip(flags, flags[1:]))  # of a flag given twice, the last one counts
    return int(last["--batch-size"]) * int(last["--tokens-per-sample"])


def _runs(comparisons: Iterable[Json], is_scored: bool = False) -> Runs:
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


def _curve(run: Json) -> Dict[int, float]:
    return {point["update"]: point["ppl"] for point in run["train"]["curve"]}


def _common_update(runs: Runs) -> int:
    """Return the last update at which every run was validated."""
    return max(set.intersection(*(set(_curve(run)) for some in runs.values() for run in some)))


def _best(runs: Runs, method: str, update: int) -> Key:
    """Return the key of a method whose first seed is best after so many updates."""
    keys = [key for key in runs if key[0] == method]
    return min(keys, key=lambda key: _curve(runs[key][0]).get(update, math.inf))


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
    known = set.intersection(*(set(_curve(run)) for run in runs))
    wanted = [max(_curve(run)) // part for run in runs for part in (4, 2, 1)]
    return sorted({max(u for u in known if u <= most) for most in wanted if most >= min(known)})


def _at(runs: Sequence[Json], update: int) -> str:
    """Return the perplexity after so many updates."""
    found = [_curve(run).get(update) for run in runs]
    return spread([one for one in found if one is not None], ".1f")


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
            yield _of_fairseq(run, tokens)
        for name, system in file.get("systems", {}).items():
            yield _of_peer(name, system)


def _of_fairseq(run: Json, tokens: Dict[str, int]) -> Line:
    label = run["label"].partition("@")[0]
    pieces = next((count for name, count in tokens.items() if name.endswith(f"-{label}")), None)
    ratio = pieces / tokens["words"] if pieces else 1.0  # pieces of a word
    points = [(seconds, ppl**ratio) for seconds, ppl in _times(run)]
    costs = {"peak": run["peak_mib"] * 2**20, "disk": 4 * run["parameters"]}
    for way in ("exact", "unnormalised"):
        speed = run.get(f"{way}_tokens_per_second")
        costs[way] = speed and speed / ratio
    return [_PEERS[label]], {**costs, **_limits(points)}


def _of_peer(name: str, found: Json) -> Line:
    points = [(point["seconds"], point["ppl"]) for point in found.get("curve", [])]
    way = "unnormalised" if name.endswith("NCE") else "exact"
    costs = {"peak": found["peak_bytes"], "disk": found["disk_bytes"]}
    costs[way] = found["words_per_processor_second"]
    return [_PEERS.get(name, name)], {
        **costs,
        **_limits(points or [(found["seconds"], found["valid_ppl"])]),
    }


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
