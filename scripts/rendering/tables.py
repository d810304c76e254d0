"""Every table, as tables.yaml describes it, and the rows that no file has as they are shown.

In files of compare.py, the label METHOD@RATE is a method with a learning rate.
"""

from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import yaml  # a dependency of omegaconf, which fairseq needs

from .cells import NAMES, Line, cell, measured, table, values

Json = Dict[str, Any]
Points = Sequence[Tuple[float, float]]  # seconds of training, perplexity
METHODS = NAMES["methods"]
LIMITS = (60, 120, 300, 600)  # seconds of training
_PEERS = {**METHODS, **NAMES["peers"]}


def _rendered(about: Union[str, Json], *files: Any) -> List[str]:
    """Return the lines of a table."""
    if isinstance(about, str):
        return globals()[about](*files)
    heads, columns = about.get("heads", [""]), about["columns"]
    if "lines" in about:
        return table(heads, [[column[0], cell(files[0], column)] for column in columns])
    if isinstance(about["rows"], str):
        return measured(heads, columns, globals()[about["rows"]](*files))
    rows = about["rows"]
    if isinstance(rows, dict):
        rows = [(label, name) for name, label in rows.items()]
    named = [(label if isinstance(label, list) else [label], names) for label, *names in rows]
    return measured(heads, columns, [(label, {"names": names}) for label, names in named], files)


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
        ways = [way for way in model["ways"] if way["rows"] <= model["words"] / 20]
        for way in ways[:1] + ways[1:][-1:]:
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


# ---------------------------------------------------------------- trainings by compare.py


def methods(*comparisons: Json) -> Iterator[Tuple[List[str], Json]]:
    """Yield the longest runs of every method, and its learning rate."""
    runs = [run for run in sum(values(list(comparisons), "runs"), []) if "failed" not in run]
    for method, title in METHODS.items():
        own = [run for run in runs if run["label"].partition("@")[0] == method]
        longest = [run for run in own if run["updates"] == max(values(own, "updates"))]
        if own:
            yield [title], {"lr": longest[0]["label"].partition("@")[2], "runs": longest}


def equal_time(*comparisons: Json) -> List[str]:
    """Tabulate perplexity after processor times that all runs have."""
    lines = list(methods(*comparisons))
    end = min(run["processor_seconds"] for _, found in lines for run in found["runs"])
    columns = [(f"{time:,.0f} s", str(time), ".1f") for time in (end / 2, end)]
    for _, found in lines:
        for _, time, _ in columns:
            found[time] = [_after(_times(run), float(time)) for run in found["runs"]]
    return measured(["validation PPL after"], columns, lines)


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
