"""Tables of bench_vocab.py's and bench_scoring.py's benchmark.json."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from .cells import number, table

Benchmark = Dict[str, Any]
SYSTEMS = {
    "cross_entropy": "`cross_entropy`",
    "adaptive_loss": "`adaptive_loss`",
    "bnce": "`bnce`",
    "bnce_sparse": "`bnce --row-sparse`",
}
SCORING = {
    "fairseq-bnce score": "`fairseq-bnce score`, text",
    "fairseq-eval-lm --unnormalized": "`fairseq-eval-lm --unnormalized`, binarised",
    "fairseq-bnce score --exact": "`fairseq-bnce score --exact`, text",
    "fairseq-eval-lm": "`fairseq-eval-lm`, binarised",
}


def run(benchmark: Benchmark, system: str, vocab: int) -> Dict[str, Any]:
    """A run's numbers; none where it was not made."""
    found = [r for r in benchmark["runs"] if (r["system"], r["vocab"]) == (system, vocab)]
    return found[0] if found else {}


def speeds(benchmark: Benchmark) -> List[str]:
    """Words/s of every system at every V."""
    return _by_vocabulary(benchmark, "words/s", "words_per_second", ",.0f")


def speeds_and_exponents(benchmark: Benchmark) -> List[str]:
    """The same, with the fitted exponents."""
    head, rule, *lines = speeds(benchmark)
    exponents = [
        number(benchmark["growth"][system]["update_exponent"], ".2f")
        for system in SYSTEMS
        if system in benchmark["growth"]
    ]
    lines = [f"{line} {exponent} |" for line, exponent in zip(lines, exponents)]
    return [f"{head} exponent of cost in V |", f"{rule}---:|", *lines]


def processor_speeds(benchmark: Benchmark) -> List[str]:
    """Words over processor time, of every system at every V."""
    measure = "words_per_processor_second"
    return _by_vocabulary(benchmark, "words/processor s", measure, ",.0f")


def memory(benchmark: Benchmark) -> List[str]:
    """Memory of an update, MiB, of every system at every V."""
    return _by_vocabulary(benchmark, "MiB", "update_mib", ",.1f")


def readme(benchmark: Benchmark) -> List[str]:
    """README.md's table of words/s."""
    return _by_vocabulary(benchmark, "", "words_per_second", ",.0f")


def _by_vocabulary(benchmark: Benchmark, title: str, measure: str, form: str) -> List[str]:
    vocabs = sorted({one["vocab"] for one in benchmark["runs"]})
    lines = []
    for system, name in SYSTEMS.items():
        values = [run(benchmark, system, vocab).get(measure) for vocab in vocabs]
        if any(values):
            lines.append([name, *(number(value, form) for value in values)])
    return table([title, f"V = {vocabs[0]:,}", *(f"{vocab:,}" for vocab in vocabs[1:])], lines)


def claims(benchmark: Benchmark) -> List[str]:
    """What row-sparse bnce was to show; what it did not is bold."""
    sparse = "words/s of row-sparse bnce, V = 1,000,000 over 10,000"
    rows: Sequence[Tuple[int, str, str]] = (
        (0, sparse, ".2f"),
        (1, "over dense bnce, V = 1,000,000", ".1f"),
        (2, "over cross_entropy, V = 200,000", ".1f"),
        (
            4,
            "memory of an update beyond parameters and optimiser state, V = 1,000,000 over 10,000",
            ".2f",
        ),
    )
    return table(["", "required", "found"], [_claim(benchmark, *row) for row in rows])


def _claim(benchmark: Benchmark, place: int, text: str, form: str) -> List[str]:
    claim = benchmark["claims"][place]
    found = number(claim["found"], form)
    if place == 4:
        found += f" ({number(run(benchmark, 'bnce_sparse', 1_000_000)['update_mib'], '.1f')} MiB)"
    required = claim["required"].replace("at least ", "")
    return [text, required, found if claim["is_met"] else f"**{found}**"]


def batches(*benchmarks: Benchmark) -> List[str]:
    """Row-sparse bnce with other batches, beside softmax and beside dense bnce.

    Args:
        benchmarks: for lstm_lm and then rnn_lm, of 100, 400 and 1,600 targets: beside softmax,
            then beside dense bnce (with 400, the same twice).
    """
    titles = ["row-sparse bnce", "targets", "words/s, V = 200,000", "× cross_entropy"]
    titles += ["words/s, V = 1,000,000", "× dense bnce"]
    targets, lines = ("100", "400 (above)", "1,600"), []
    for place in range(0, len(benchmarks), 2):
        model = ("`lstm_lm`", "`rnn_lm`")[place // 6] if place % 6 == 0 else ""
        pair = benchmarks[place : place + 2]
        lines.append([model, targets[place // 2 % 3], *_batch(*pair)])
    return table(titles, lines)


def _batch(beside_softmax: Benchmark, beside_dense: Benchmark) -> List[str]:
    softmax = run(beside_softmax, "bnce_sparse", 200_000)
    dense = run(beside_dense, "bnce_sparse", 1_000_000)
    return [
        number(softmax["words_per_second"], ",.0f"),
        number(softmax["x_softmax"], ".1f"),
        number(dense["words_per_second"], ",.0f"),
        number(dense["x_dense"], ".1f"),
    ]


def scoring(benchmark: Benchmark) -> List[str]:
    """docs/scoring.md's sentences/s, over what the longer of two texts took more."""
    by_system = {one["system"]: one for one in benchmark["speeds"]}
    lines = [
        [title, _rate(by_system[name], "seconds"), _rate(by_system[name], "cpu_seconds")]
        for name, title in SCORING.items()
    ]
    return table(["", "sentences/s", "of processor time"], lines)


def _rate(speed: Dict[str, Any], time: str) -> str:
    (few, many), (short, long) = speed["sentences"], speed[time]
    rate: Optional[float] = (many - few) / (long - short)
    return number(rate, ",.0f")
