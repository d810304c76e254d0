"""Tables of quickstart.py, bench_scoring.py, bench_offset.py and the commands of fairseq-bnce."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from .cells import Columns, interval, measured, number, table

SYSTEMS = {
    "fairseq-bnce score": "`fairseq-bnce score`, text",
    "fairseq-eval-lm --unnormalized": "`fairseq-eval-lm --unnormalized`, binarised",
    "fairseq-bnce score --exact": "`fairseq-bnce score --exact`, text",
    "fairseq-eval-lm": "`fairseq-eval-lm`, binarised",
}
_SPEEDS: Columns = (
    ("sentences/s", "seconds", ",.0f"),
    ("of processor time", "cpu_seconds", ",.0f"),
    ("× `fairseq-eval-lm`", "faster", ".1f"),
)
_MEMORY: Columns = (("peak memory, MiB", "peak_mib", ".0f"), ("seconds", "seconds", ".1f"))
DIAGNOSIS: Columns = (
    ("contexts", "contexts", ",d"),
    ("µ_z, nats", "mu_z", ".4f"),
    ("σ_z, nats", "sigma_z", ".4f"),
    ("lowest log Z_c − log Z", "lowest", ".3f"),
    ("highest log Z_c − log Z", "highest", ".3f"),
    ("perplexity, exact", "ppl", ".2f"),
    ("perplexity, unnormalised", "u_ppl", ".2f"),
    ("entropy, nats", "entropy", ".3f"),
    ("correlation of entropy and log Z_c", "entropy_correlation", ".3f"),
    ("likeliest word came", "accuracy", ".2%"),
    ("calibration error, exact", "calibration_error", ".4f"),
    ("calibration error, shifted", "u_calibration_error", ".4f"),
)
_OFFSETS: Columns = (
    ("σ_z, nats", "sigma_z", ".3f"),
    ("perplexity, exact", "ppl", ".2f"),
    ("without a softmax", "u_ppl", ".2f"),
    ("× as fast", "faster", ".1f"),
)
_SHARE = ("share", "low", "high")


def quickstart(results: Dict[str, Any]) -> List[str]:
    """Tabulate the perplexities that quickstart.py prints; its speeds differ from run to run."""
    lines = [[name, number(one["ppl"], ".1f")] for name, one in results["rows"].items()]
    return table(["", "test perplexity"], lines)


def speeds(benchmark: Dict[str, Any]) -> List[str]:
    """Tabulate sentences/s of bench_scoring.py, over the extra time of the longer of two texts."""
    found = {}
    for one in benchmark["speeds"]:
        few, many = one["sentences"]
        found[one["system"]] = {
            name: (many - few) / (one[name][1] - one[name][0])
            for name in ("seconds", "cpu_seconds")
        }
    slow = found["fairseq-eval-lm"]["cpu_seconds"]
    lines = [
        ([title], {**found[name], "faster": found[name]["cpu_seconds"] / slow})
        for name, title in SYSTEMS.items()
    ]
    return measured([""], _SPEEDS, lines)


def memory(benchmark: Dict[str, Any]) -> List[str]:
    """Tabulate peak memory for bench_scoring.py's texts with three words a line."""
    lines = [([f"{int(lines):,}"], found) for lines, found in benchmark["memory"].items()]
    return measured(["lines"], _MEMORY, lines)


def splits(*reports: Dict[str, Any]) -> List[str]:
    """Tabulate every split of corpora, from the report.json of get-data and prepare-text."""
    lines = []
    for report in reports:
        for name, split in report["splits"].items():
            counts = [number(split[count], ",d") for count in ("lines", "types", "tokens")]
            share = number(100 * split["unk"] / split["tokens"], ".2f")
            lines.append([f"`{report['corpus']['name']}` {name}", *counts, f"{share} %"])
    return table(["", "sentences", "types", "tokens", "`<unk>`"], lines)


def printed(lines: List[Dict[str, Any]]) -> List[str]:
    """Tabulate the text output of fairseq-bnce score, from its --json output."""
    shown = [f"{one['log_prob']:.6f}\t{one['tokens']}\t{one['oov']}" for one in lines]
    return ["```", *shown, "```"]


def diagnosis(found: Dict[str, Any]) -> List[str]:
    """Tabulate the numbers of fairseq-bnce diagnose."""
    return table(["", ""], [[title, number(found[name], form)] for title, name, form in DIAGNOSIS])


def offsets(*found: Dict[str, Any]) -> List[str]:
    """Tabulate scores without a softmax, by a constant and by the default rows: bench_offset.py."""
    lines: List[Tuple[Sequence[str], Dict[str, Any]]] = []
    for name, model in (pair for one in found for pair in one["models"].items()):
        fiftieth = [way for way in model["ways"] if way["rows"] <= model["words"] / 50]
        for way in fiftieth[:1] + fiftieth[1:][-1:]:
            rows = f"{way['rows']:,} rows" if way["rows"] else "a constant"
            # Rows fitted to training text have their mean corrected on another text.
            ppl = way.get("u_ppl_other_mean", way["u_ppl"])
            numbers = {**way, "u_ppl": ppl, "faster": way["speed"] / model["exact_speed"]}
            lines.append(([f"{name}, {rows}"], numbers))
    return measured([""], _OFFSETS, lines)


def completed(*answers: Dict[str, Any]) -> List[str]:
    """Tabulate fairseq-bnce complete --json: a line for each model, or for the sum of several."""
    titles = ["", "right, exact, % [95 %]", "unnormalised, % [95 %]", "choices that differ, %"]
    lines = []
    for found in answers:
        models = " + ".join(f"`{Path(path).stem}`" for path in found["path"].split(":"))
        ends = [[100 * found[way][n] for n in _SHARE] for way in ("exact", "unnormalized")]
        shares = [interval(numbers, ".1f") for numbers in ends]
        lines.append([models, *shares, number(100 * found["differ"]["share"], ".1f")])
    return table(titles, lines)


_STAGES = {
    "before": "before, as `<unk>`",
    "added": "added with the sentences",
    "further": "after 200 further updates",
    "whole": "trained with them from the start",
}
_KINDS = {"new_words": "new words", "old_lines": "lines without them"}


def extension(ptb: Dict[str, Any], novels: Dict[str, Any]) -> List[str]:
    """Tabulate perplexities before and after words were added to a model."""
    files = {"PTB": ptb["perplexity"], "novels": novels["perplexity"]}
    titles = ["", *(f"{corpus}, {kind}" for corpus in files for kind in _KINDS.values())]
    lines = [
        [
            name,
            *(
                number(found.get(stage, {}).get(kind), ",.1f")
                for found in files.values()
                for kind in _KINDS
            ),
        ]
        for stage, name in _STAGES.items()
    ]
    return table(titles, lines)
