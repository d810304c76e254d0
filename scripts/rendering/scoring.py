"""Tables of what scores and diagnoses text: quickstart.py, bench_scoring.py, fairseq-bnce, …"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from .cells import interval, number, table

SYSTEMS = {
    "fairseq-bnce score": "`fairseq-bnce score`, text",
    "fairseq-eval-lm --unnormalized": "`fairseq-eval-lm --unnormalized`, binarised",
    "fairseq-bnce score --exact": "`fairseq-bnce score --exact`, text",
    "fairseq-eval-lm": "`fairseq-eval-lm`, binarised",
}
EXACT = "fairseq-eval-lm"
_WAYS = ("exact", "unnormalized")
DIAGNOSIS: Sequence[Tuple[str, str, str]] = (
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


def quickstart(results: Dict[str, Any]) -> List[str]:
    """What quickstart.py prints at its end, but for its speeds, which are of a moment."""
    lines = [[name, number(one["ppl"], ".1f")] for name, one in results["rows"].items()]
    return table(["", "test perplexity"], lines)


def speeds(benchmark: Dict[str, Any]) -> List[str]:
    """Sentences/s of bench_scoring.py, over what the longer of two texts took more."""
    found = {one["system"]: one for one in benchmark["speeds"]}
    rates = {name: _rate(found[name], "cpu_seconds") for name in SYSTEMS}
    lines = [
        [
            title,
            number(_rate(found[name], "seconds"), ",.0f"),
            number(rates[name], ",.0f"),
            number(rates[name] / rates[EXACT], ".1f"),
        ]
        for name, title in SYSTEMS.items()
    ]
    return table(["", "sentences/s", "of processor time", "× `fairseq-eval-lm`"], lines)


def _rate(speed: Dict[str, Any], time: str) -> float:
    (few, many), (short, long) = speed["sentences"], speed[time]
    return (many - few) / (long - short)


def memory(benchmark: Dict[str, Any]) -> List[str]:
    """Peak memory of bench_scoring.py's texts of three words a line."""
    lines = [
        [f"{int(lines):,}", number(found["peak_mib"], ".0f"), number(found["seconds"], ".1f")]
        for lines, found in benchmark["memory"].items()
    ]
    return table(["lines", "peak memory, MiB", "seconds"], lines)


def agreement(found: Dict[str, Any]) -> List[str]:
    """score_agreement.py: our scores against fairseq-eval-lm's."""
    titles = ["", "words", "perplexity, exact", "largest difference, exact", "unnormalised"]
    lines = [
        [
            f"`{name}`",
            number(ways["exact"]["words"], ",d"),
            number(ways["exact"]["perplexity"], ".2f"),
            *(f"{ways[way]['difference']:.1e}" for way in ("exact", "unnormalised")),
        ]
        for name, ways in found["models"].items()
    ]
    return table(titles, lines)


def printed(lines: List[Dict[str, Any]]) -> List[str]:
    """What fairseq-bnce score prints, of what it prints with --json."""
    shown = [f"{one['log_prob']:.6f}\t{one['tokens']}\t{one['oov']}" for one in lines]
    return ["```", *shown, "```"]


def summaries(unnormalised: Dict[str, Any], exact: Dict[str, Any]) -> List[str]:
    """fairseq-bnce score --summary --json, without and with --exact."""
    titles = ["", "perplexity including OOVs", "excluding OOVs", "OOVs", "tokens"]
    lines = [
        [
            title,
            *(number(found[name], ".3f") for name in ("ppl_with_oov", "ppl_without_oov")),
            *(number(found[name], ",d") for name in ("oov", "tokens")),
        ]
        for title, found in (("unnormalised", unnormalised), ("`--exact`", exact))
    ]
    return table(titles, lines)


def diagnosis(found: Dict[str, Any]) -> List[str]:
    """The numbers of fairseq-bnce diagnose."""
    return table(["", ""], [[title, number(found[name], form)] for title, name, form in DIAGNOSIS])


def offsets(*found: Dict[str, Any]) -> List[str]:
    """bench_offset.py: models without a softmax, by the rows of a reduced partition function."""
    perplexities = {"perplexity, exact": "ppl", "without a softmax": "u_ppl"}
    ways = [way for one in found for model in one["models"].values() for way in model["ways"]]
    if any("u_ppl_other_mean" in way for way in ways):
        perplexities["with µ_z of another text"] = "u_ppl_other_mean"
    titles = ["", "rows", "σ_z, nats", *perplexities]
    lines = [
        [
            f"{name}, V = {model['words']:,}",
            number(way["rows"], ",d") if way["rows"] else "a constant",
            number(way["sigma_z"], ".3f"),
            *(number(way.get(which), ".2f") for which in perplexities.values()),
            *(number(speed, ",.0f") for speed in (model["exact_speed"], way["speed"])),
        ]
        for one in found
        for name, model in one["models"].items()
        for way in model["ways"]
    ]
    return table([*titles, "tokens/s, exact", "without a softmax"], lines)


def farthest(found: Dict[str, Any]) -> List[str]:
    """The contexts of fairseq-bnce diagnose --worst."""
    lines = [
        [
            f"`{one['before']} [{one['word']}]`",
            number(one["deviation"], ".3f"),
            number(one["entropy"], ".3f"),
        ]
        for one in found["farthest"]
    ]
    return table(["context [next word]", "log Z_c − log Z", "entropy"], lines)


def completed(*answers: Dict[str, Any]) -> List[str]:
    """Of ``fairseq-bnce complete --json``: a line for each model, or for the sum of several."""
    titles = ["", "right, exact, % [95 %]", "unnormalised, % [95 %]", "choices that differ, %"]
    return table(titles, list(map(_answered, answers)))


def _answered(found: Dict[str, Any]) -> List[str]:
    models = [f"`{Path(path).stem}`" for path in found["path"].split(":")]
    shares = [[100 * found[way][name] for name in ("share", "low", "high")] for way in _WAYS]
    differ = number(100 * found["differ"]["share"], ".1f")
    return [" + ".join(models), *(interval(share, ".1f") for share in shares), differ]
