"""Rows of tables whose numbers are not in a file as they are shown."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence

from .cells import NAMES, SOFTMAX, Columns, Line, measured, number, ratio

Json = Dict[str, Any]
SCORERS, SEARCHED, HEADS = (NAMES[name] for name in ("scorers", "searched", "heads"))
DECODERS, MODELS = NAMES["decoders"], NAMES["language models"]
_HALVES = "--memory-efficient-bf16"


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


# ---------------------------------------------------------------- vocabulary and GPU


def other_batches(*benchmarks: Json) -> Iterator[Line]:
    """Yield row-sparse bnce with other batches.

    Args:
        benchmarks: in pairs for a model and a batch: with the softmax, and with dense bnce.
    """
    for softmax, dense in zip(benchmarks[::2], benchmarks[1::2]):
        recipe = softmax["settings"]["recipe"]
        (sentences, length), flags = recipe["batch"], recipe["training"]
        arch = f"`{flags[flags.index('--arch') + 1]}`"
        yield [arch], {"targets": sentences * length, "softmax": softmax, "dense": dense}


def by_vocabulary(measure: str, form: str, benchmark: Json) -> Columns:
    """Return the columns of a measurement at every V."""
    first, *others = sorted({run["vocab"] for run in benchmark["runs"]})
    titles = {first: f"V = {first:,}", **{vocab: f"{vocab:,}" for vocab in others}}
    path = f"/runs/system={{}}/vocab=%s/{measure}"
    return [(title, path % vocab, form) for vocab, title in titles.items()]


def gpu_sizes(results: Json) -> Columns:
    """Return the columns of trainings by vocabulary, in bfloat16."""
    found = sorted({row["key"][1] for row in results["training"]})
    return [(f"V = {size:,}", str(size), "") for size in found]


def gpu_trainings(results: Json) -> Iterator[Line]:
    """Yield words/s and peak memory by vocabulary, in bfloat16."""
    for system in ("bnce row-sparse", "bnce", SOFTMAX, "adaptive_loss"):
        cells = {}
        for row in results["training"]:
            if row["key"][0] == system and row["key"][2:] == [_HALVES] and "words_per_s" in row:
                peak = number(row["peak_gb"], ".1f")
                cells[str(row["key"][1])] = f"{number(row['words_per_s'], ',.0f')} ({peak})"
        yield [f"`{system}`"], cells


def gpu_layer(results: Json) -> Iterator[Line]:
    """Yield time and memory of the output layer alone, at the first shape and dtype."""
    place = results["layer"][0]["key"][1:]
    found = {row["key"][0]: row for row in results["layer"] if row["key"][1:] == place}
    best = min(found[head]["ms"] for head in list(HEADS)[3:])
    for head, title in HEADS.items():
        yield [title], {**found[head], "speed": ratio(best, found[head]["ms"])}


# ---------------------------------------------------------------- papers


def beside(columns: Columns, rows: Sequence[Json]) -> List[str]:
    """Return a table of our numbers beside the paper's; a column without any number is left out."""
    lines = []
    for row in rows:
        numbers = {name: _ours(row, name) for _, name, _ in columns}
        numbers.update((f"paper's {name}", value) for name, value in row["paper"].items())
        lines.append(([f"`{row['label']}`"], numbers))
    known = {name for _, numbers in lines for name, value in numbers.items() if value}
    pairs = [pair for column in columns for pair in (column, ("paper", f"paper's {column[1]}", ""))]
    paired = [(title, name, form) for title, name, form in pairs if name in known]
    ours = {name for _, name, _ in columns} & known
    return measured([""], [c for c in paired if c[1].split("'s ")[-1] in ours], lines)


def of_size(*recipes: Json) -> List[Json]:
    """Return the rows of Goldberger & Melamud on PTB by size: of the first seed that ran."""
    found: Dict[str, Json] = {}
    for row in (row for recipe in recipes for row in recipe["rows"]):
        best = (found.get(row["label"], row), row)
        found[row["label"]] = min(best, key=lambda r: r["seed"] if r.get("ours") else math.inf)
    return sorted((row for row in found.values() if row.get("ours")), key=_size)


def seeds_of_sizes(*recipes: Json) -> Iterator[Line]:
    """Yield rows of a size with several seeds beside the softmax."""
    found = _by_label(recipes)
    several = {_size(rows[0]) for rows in found.values() if len(rows) > 1}
    for label, rows in found.items():
        if _size(rows[0]) in several:
            softmax = found.get(f"softmax-{_size(rows[0])}", [])
            numbers = {"rows": rows, "softmax": softmax, "seeds": len(rows)}
            yield [f"`{label}`"], numbers


def by_label(*recipes: Json) -> Iterator[Line]:
    """Yield every row with a run of several seeds."""
    for label, rows in _by_label(recipes).items():
        names = dict.fromkeys(name for row in rows for name in row["ours"])
        yield [f"`{label}`"], {name: [_ours(row, name) for row in rows] for name in names}


def _by_label(recipes: Iterable[Json]) -> Dict[str, List[Json]]:
    found: Dict[str, List[Json]] = {}
    for row in (row for recipe in recipes for row in recipe["rows"] if row.get("ours")):
        found.setdefault(row["label"], []).append(row)
    return found


def _size(row: Json) -> int:
    """Return the size in a label METHOD-SIZE."""
    return int(row["label"].rpartition("-")[2])


def _ours(row: Json, name: str) -> Optional[float]:
    """Return our number; raw scores of a softmax have no unnormalised perplexity."""
    is_raw = "u_ppl" in name and row["criterion"] == SOFTMAX
    return None if is_raw else (row.get("ours") or {}).get(name)
