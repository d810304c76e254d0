"""Rows of tables whose numbers are not in a file as they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from .cells import NAMES, Columns, Line, measured
from .paths import values

Json = Dict[str, Any]
SCORERS, SEARCHED = NAMES["scorers"], NAMES["searched"]
DECODERS, MODELS = NAMES["decoders"], NAMES["language models"]


# ---------------------------------------------------------------- scoring and speech


def splits(*reports: Json) -> Iterator[Line]:
    """Yield every split of corpora, from the report.json of get-data and prepare-text."""
    for report in reports:
        for name, split in report["splits"].items():
            yield [f"`{report['corpus']['name']}` {name}"], split


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
    for name, title in SCORERS.items():
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
        shares = {
            way: [100 * found[way][end] for end in ("share", "low", "high")]
            for way in ("exact", "unnormalized")
        }
        yield [models], {**found, **shares}


def searched(benchmark: Json) -> Iterator[Line]:
    """Yield the work of each system in a processor second, at every V: bench decoding."""
    runs = {(run["vocab"], run["system"]): run for run in benchmark["runs"]}
    for vocab, system in sorted(runs, key=lambda key: (key[0], list(SEARCHED).index(key[1]))):
        run, slow = runs[vocab, system], runs.get((vocab, "prefix"))
        faster = rate(run) / rate(slow) if slow else None
        yield [f"{vocab:,}", SEARCHED[system]], {**run, "rate": rate(run), "faster": faster}


def rate(run: Json) -> float:
    """Return utterances per processor second."""
    return run["utterances"] / run["processor_seconds"]


def first_pass(found: Json) -> Iterator[Line]:
    """Yield word error rates and real-time factors of all systems."""
    for name, system in found["systems"].items():
        library, _, model = name.partition(" ")
        gain = found["differences"].get(f"{library} ours - {name}")
        real_time = system["real_time"] if model else None
        labels = [DECODERS.get(library, "greedy"), MODELS.get(model, "–")]
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
    ran = (row for recipe in recipes for row in recipe["rows"] if row.get("ours"))
    for row in sorted(ran, key=lambda row: row["seed"]):
        found.setdefault(row["label"], row)
    places = [row["label"] for recipe in recipes for row in recipe["rows"]]
    order = sorted(found, key=lambda label: (int(label.rpartition("-")[2]), places.index(label)))
    return (([f"`{label}`"], found[label]) for label in order)
