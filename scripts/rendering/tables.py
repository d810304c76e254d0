"""Every table, as tables.yaml describes it, and the rows that no file has as they are shown.

In files of compare.py, the label METHOD@RATE is a method with a learning rate. Where several files
have a run, the longest counts. Tables show a method with its best rate: the rate that ends best,
among those that were trained for longest.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import yaml  # a dependency of omegaconf, which fairseq needs

from .cells import NAMES, Columns, Line, cell, measured, table, values

Json = Dict[str, Any]
Runs = Dict[Tuple[str, str], List[Json]]  # by method and learning rate, a run for each seed
Points = Sequence[Tuple[float, float]]  # seconds of training, perplexity
METHODS = NAMES["methods"]
LIMITS = (60, 120, 300, 600)  # seconds of training
_PEERS = {**METHODS, **NAMES["peers"]}
_AFTER = "train/curve/update=%d/ppl"


def _rendered(about: Union[str, Json], *files: Any) -> List[str]:
    """Return the lines of a table."""
    if isinstance(about, str):
        return globals()[about](*files)
    heads, columns = about.get("heads", [""]), about["columns"]
    if "lines" in about:
        return table(heads, [[column[0], cell(files[0], column)] for column in columns])
    if isinstance(about["rows"], str):
        return measured(heads, columns, globals()[about["rows"]](*files))
    named = [([label], {"{}": name}) for name, label in about["rows"].items()]
    return measured(heads, columns, named, files)


_ABOUT = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TABLES: Dict[str, Callable[..., List[str]]] = {
    name: partial(_rendered, about) for name, about in _ABOUT.items()
}


# ---------------------------------------------------------------- scoring and speech


def printed(lines: List[Json]) -> List[str]:
    """Return the text output of fairseq-bnce score, from its --json output."""
    shown = [f"{one['log_prob']:.6f}\t{one['tokens']}\t{one['oov']}" for one in lines]
    return ["```", *shown, "```"]


def scorers(benchmark: Json) -> Iterator[Line]:
    """Yield sentences/s of bench scoring, over the extra time of the longer of two texts."""
    found = {}
    for one in benchmark["speeds"]:
        few, many = one["sentences"]
        times = {name: one[name][1] - one[name][0] for name in ("seconds", "cpu_seconds")}
        found[one["system"]] = {name: (many - few) / time for name, time in times.items()}
    slow = found["fairseq-eval-lm"]["cpu_seconds"]
    for name, title in NAMES["scorers"].items():
        yield [title], {**found[name], "faster": found[name]["cpu_seconds"] / slow}


def offsets(*found: Json) -> Iterator[Line]:
    """Yield scores without a softmax, by a constant and by the default rows: bench offset."""
    for name, model in (pair for one in found for pair in one["models"].items()):
        fiftieth = [way for way in model["ways"] if way["rows"] <= model["words"] / 50]
        for way in fiftieth[:1] + fiftieth[1:][-1:]:
            rows = f"{way['rows']:,} rows" if way["rows"] else "a constant"
            # Rows fitted to training text have their mean corrected on another text.
            ppl = way.get("u_ppl_other_mean", way["u_ppl"])
            faster = way["speed"] / model["exact_speed"]
            yield [f"{name}, {rows}"], {**way, "u_ppl": ppl, "faster": faster}


def completed(*answers: Json) -> Iterator[Line]:
    """Yield fairseq-bnce complete --json: a line for each model, or for the sum of several."""
    for found in answers:
        models = " + ".join(f"`{Path(path).stem}`" for path in found["path"].split(":"))
        ways = {way: values(found[way], "share|low|high") for way in ("exact", "unnormalized")}
        shares = {way: [100 * share for share in some] for way, some in ways.items()}
        yield [models], {**found, **shares}


def searched(benchmark: Json) -> Iterator[Line]:
    """Yield the work of each system in a processor second, at every V: bench decoding."""
    runs = {(run["vocab"], run["system"]): run for run in benchmark["runs"]}
    for vocab in sorted({vocab for vocab, _ in runs}):
        for system, title in NAMES["searched"].items():
            run, slow = runs[vocab, system], rate(runs[vocab, "prefix"])
            yield [f"{vocab:,}", title], {**run, "rate": rate(run), "faster": rate(run) / slow}


def rate(run: Json) -> float:
    """Return utterances per processor second."""
    return run["utterances"] / run["processor_seconds"]


def first_pass(found: Json) -> Iterator[Line]:
    """Yield word error rates and real-time factors of all systems."""
    for name, system in found["systems"].items():
        library, _, model = name.partition(" ")
        gain = found["differences"].get(f"{library} ours - {name}")
        real_time = system["real_time"] if model else None
        labels = [NAMES["decoders"].get(library, library), NAMES["language models"].get(model, "–")]
        yield labels, {"wer": system["wer"], "gain": gain, "real_time": real_time}


# ---------------------------------------------------------------- papers


def beside(columns: Columns, rows: Sequence[Json]) -> List[str]:
    """Return a table of our numbers beside the paper's, without columns that have no number."""
    shown = []
    for title, name, form in columns:
        if values(rows, f"ours/{name}"):
            paper = ("paper", f"paper/{name}", "")
            shown += [(title, f"ours/{name}", form), *[paper] * bool(values(rows, paper[1]))]
    return measured([""], shown, (([f"`{row['label']}`"], row) for row in rows))


def of_size(*recipes: Json) -> Iterator[Line]:
    """Yield the rows of Goldberger & Melamud on PTB by size: of the first seed that ran."""
    found: Dict[str, Json] = {}
    rows: List[Json] = sum(values(list(recipes), "rows"), [])
    for row in sorted((row for row in rows if row.get("ours")), key=lambda row: row["seed"]):
        found.setdefault(row["label"], row)
    for row in sorted(rows, key=lambda row: int(row["label"].rpartition("-")[2])):
        if row["label"] in found:
            yield [f"`{row['label']}`"], found.pop(row["label"])


# ---------------------------------------------------------------- trainings by compare.py


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
            end = values(runs[best], _AFTER % last[size])
            lines.append(([METHODS[method]], {"size": size, "rate": best[1], "end": end}))
    targets = [size * update for size, update in last.items()]
    shown = " to ".join(f"{count:,}" for count in dict.fromkeys((min(targets), max(targets))))
    columns = [("targets a batch", "size", ","), ("best lr", "rate", "")]
    columns += [("validation PPL", "end", ".1f")]
    return measured([f"after {shown} targets"], columns, lines)


def leaders(*comparisons: Json) -> List[str]:
    """Tabulate perplexity at equal updates, of every method with its best rate."""
    chosen = _leaders(comparisons)
    columns = [("lr", "lr", "")]
    for update in _milestones(sum(chosen.values(), [])):
        columns.append((f"valid PPL after {update:,} updates", f"runs/{_AFTER % update}", ".1f"))
    lines = [([METHODS[method]], {"lr": lr, "runs": runs}) for (method, lr), runs in chosen.items()]
    return measured([""], columns, lines)


def equal_time(*comparisons: Json) -> List[str]:
    """Tabulate perplexity after processor times that all runs have."""
    chosen = _leaders(comparisons)
    end = min(run["processor_seconds"] for runs in chosen.values() for run in runs)
    columns = [(f"{time:,.0f} s", str(time), ".1f") for time in (end / 2, end)]
    lines = []
    for (method, _), runs in chosen.items():
        found = {at: [_after(_times(run), float(at)) for run in runs] for _, at, _ in columns}
        lines.append(([METHODS[method]], found))
    return measured(["validation PPL after"], columns, lines)


def longest(*comparisons: Json) -> Iterator[Line]:
    """Yield the longest runs of every method: their speed is best known."""
    runs = _runs(comparisons)
    for method in _methods(runs):
        own = [run for key, some in runs.items() if key[0] == method for run in some]
        yield [METHODS[method]], {"runs": values(own, f"updates={max(values(own, 'updates'))}")}


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
            yield [NAMES["optimizers"][name], f"{_targets(comparison):,}", rate], run


def rates(*comparisons: Json) -> Iterator[Line]:
    """Yield runs by model, --lr and --dense-lr-scale; a label is RATExSCALE."""
    for comparison in comparisons:
        for run in comparison["runs"]:
            recipe = comparison["recipe"]["name"]
            yield [NAMES["recipes"][recipe], *run["label"].split("x")], run


def _targets(comparison: Json) -> int:
    """Return the targets of a batch."""
    flags = [*comparison["recipe"]["training"], *comparison["flags"]]
    last = dict(zip(flags, flags[1:]))  # of a flag given twice, the last one counts
    return int(last["--batch-size"]) * int(last["--tokens-per-sample"])


def _runs(comparisons: Sequence[Json], is_scored: bool = False) -> Runs:
    """Return the longest run of every label and seed, among all runs or the scored ones."""
    longest: Dict[Tuple[str, int], Json] = {}
    for run in sum(values(list(comparisons), "runs"), []):
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


def _common(runs: Sequence[Json]) -> Set[int]:
    """Return the updates at which every run was validated."""
    return set.intersection(*(set(values(run, "train/curve/update")) for run in runs))


def _best(runs: Runs, method: str, update: int) -> Tuple[str, str]:
    """Return the key of a method whose first seed is best after so many updates."""
    own = [key for key in runs if key[0] == method]
    return min(own, key=lambda key: (*values(runs[key][0], _AFTER % update), math.inf)[0])


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


def peers(*files: Json) -> Iterator[Line]:
    """Yield fairseq's models and those of other programs: perplexities of a word, and costs."""
    tokens = {name: n for file in files for name, n in file.get("tokens", {}).items()}
    for file in files:
        for run in file.get("runs", []):
            label = run["label"].partition("@")[0]
            pieces = [count for name, count in tokens.items() if name.endswith(f"-{label}")]
            ratio = pieces[0] / tokens["words"] if pieces else 1.0  # pieces of a word
            costs = {"peak": run["peak_mib"] * 2**20, "disk": 4 * run["parameters"]}
            for way in ("exact", "unnormalised"):
                speed = run.get(f"{way}_tokens_per_second")
                costs[way] = speed and speed / ratio
            points = [(seconds, ppl**ratio) for seconds, ppl in _times(run)]
            yield [_PEERS[label]], {**costs, **_limits(points)}
        for name, found in file.get("systems", {}).items():
            points = [(point["seconds"], point["ppl"]) for point in found.get("curve", [])]
            points = points or [(found["seconds"], found["valid_ppl"])]
            way = "unnormalised" if name.endswith("NCE") else "exact"
            costs = {"peak": found["peak_bytes"], "disk": found["disk_bytes"]}
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
        for way in ("running", "lines"):
            for run in (run for run in file["mixtures"] if way in run):
                text, start = file["text"], run["label"].partition("@")[0]
                label = f"{NAMES['texts'][text]}, {way}, {run['updates']:,} updates"
                row = lines.setdefault(label + NAMES["starts"][start], {"runs": [], "valid": []})
                row["runs"].append(run)
                row["valid"].append(run[way]["valid"])
    return (([label], row) for label, row in lines.items())


def unnormalised_mixtures(*files: Json) -> Iterator[Line]:
    """Yield those of :func:`mixtures` whose network normalises itself."""
    return (line for line in mixtures(*files) if "unnormalised" in line[1]["valid"][0])
