"""What is to be shown, held against the results of a benchmark or an example.

    python tests/claims.py FOLDER/benchmark.json FOLDER/output_layer.json \\
        docs/rescoring/speech.json docs/decoding/first-pass.json

Prints a line for each claim: met, NOT met or not measured. The first kind is bench_vocab.py's,
stated for V from 10^4 to 10^6 (over cross_entropy: V = 200,000) on the CPU; the second that of
bench_output_layer.py, stated for a GPU and V of at least 100,000 (of the memory: 256,000); the
third that of speech_example.py, and the fourth that of first_pass_example.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

SUBJECT, DENSE, SOFTMAX = "bnce_sparse", "bnce", "cross_entropy"


class Claim(NamedTuple):
    """Something that a benchmark is to show.

    Attributes:
        found: None where a run that it needs is missing, or where it is not stated.
        least, most: bounds of ``found``.
    """

    text: str
    found: Optional[float]
    least: float = float("-inf")
    most: float = float("inf")

    @property
    def is_met(self) -> Optional[bool]:
        return None if self.found is None else self.least <= self.found <= self.most

    def __str__(self) -> str:
        bounds = {"at least": self.least, "at most": self.most}
        required = " and ".join(f"{k} {v:g}" for k, v in bounds.items() if abs(v) < float("inf"))
        found = "–" if self.found is None else f"{self.found:,.2f}"
        verdict = {True: "met", False: "NOT met", None: "not measured"}[self.is_met]
        return f"{self.text}: required {required}, found {found}: {verdict}"


def of_vocabulary(benchmark: Dict[str, Any]) -> List[Claim]:
    """Of bench_vocab.py's benchmark.json, at the vocabularies that were measured."""
    speed = {
        (run["system"], run["vocab"]): run.get("words_per_second") for run in benchmark["runs"]
    }
    vocabs = sorted({vocab for _, vocab in speed})
    small, large = vocabs[0], vocabs[-1]
    against = 200_000 if 200_000 in vocabs else large
    growth = benchmark["growth"].get(SUBJECT, {})
    span = f"V = {large:,} over V = {small:,}"

    def over(system: str, vocab: int) -> Optional[float]:
        above, below = speed.get((SUBJECT, vocab)), speed.get((system, vocab))
        return above / below if above and below else None

    return [
        Claim(f"words/s of {SUBJECT}, {span}", growth.get("speed_kept"), 0.8),
        Claim(f"words/s of {SUBJECT} over {DENSE}, V = {large:,}", over(DENSE, large), 30),
        Claim(f"words/s of {SUBJECT} over {SOFTMAX}, V = {against:,}", over(SOFTMAX, against), 50),
        Claim(f"exponent of {SUBJECT}'s cost in V", growth.get("update_exponent"), most=0.05),
        Claim(f"memory of an update, {SUBJECT}, {span}", growth.get("memory_growth"), 0.95, 1.05),
    ]


def of_output_layer(benchmark: Dict[str, Any]) -> List[Claim]:
    """Of bench_output_layer.py's output_layer.json, at every shape."""
    rows = {(row["shape"], row["head"]): row for row in benchmark["rows"]}
    is_gpu = benchmark["settings"]["device"] == "cuda"
    shapes = dict.fromkeys(shape for shape, _ in rows)
    return [claim for shape in shapes for claim in _at_shape(shape, rows, is_gpu)]


def _at_shape(shape: str, rows: Dict[Any, Dict[str, Any]], is_gpu: bool) -> List[Claim]:
    vocab = int(shape.split("x")[-1])

    def number(head: str, name: str, least_vocab: int = 100_000) -> Optional[float]:
        is_stated = is_gpu and vocab >= least_vocab
        return rows.get((shape, head), {}).get(name) if is_stated else None

    faster = "over the fastest exact head, times as fast"
    memory, limit = number(SUBJECT, "extra_mb", 256_000), number(SUBJECT, "of_limit")
    return [
        Claim(f"{shape}: {SUBJECT} {faster}", number(SUBJECT, "x_exact"), 10),
        Claim(f"{shape}: {DENSE} {faster}", number(DENSE, "x_exact"), 10),
        Claim(f"{shape}: extra MB of {SUBJECT}", memory, most=200),
        Claim(f"{shape}: time of {SUBJECT} over that of three_matmuls", limit, most=1.5),
    ]


def of_speech(found: Dict[str, Any]) -> List[Claim]:
    """Of speech_example.py's speech.json: word error rates, per cent, with their intervals."""
    differences = found["differences"]

    def gain(before: str) -> Claim:
        _, _, high = differences[f"unnormalized - {before}"]
        return Claim(f"WER, unnormalised - {before}: end of the interval", high, most=-1e-9)

    apart = abs(differences["unnormalized - exact"][0])
    return [
        Claim("WER, unnormalised - exact: size", apart, most=0.2),
        gain("first"),
        gain("trigram"),
    ]


def of_first_pass(found: Dict[str, Any]) -> List[Claim]:
    """Of first_pass_example.py's first-pass.json: word error rates, per cent."""
    return [
        Claim(
            f"{library}: WER, unnormalised - exact: size",
            abs(found["differences"][f"{library} ours - {library} ours exact"][0]),
            most=0.2,
        )
        for library in ("flashlight", "pyctcdecode")
    ]


# By a name that no other kind has.
_KINDS = {"rows": of_output_layer, "wer": of_speech, "systems": of_first_pass}


def main(paths: List[str]) -> None:
    for path in paths:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        kind = next((kind for name, kind in _KINDS.items() if name in found), of_vocabulary)
        print(*kind(found), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
