"""Tables of docs/results/peers.md: files of compare.py and of bench_peers.py side by side."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .adaptive import METHODS
from .cells import Columns, measured, number, table

_PIECES = {"bpe4000": "softmax, 4,000 merges", "bpe16000": "softmax, 16,000 merges"}
_OWN = {"unigram": "softmax", "gru": "`bnce --row-sparse`, a GRU", "KenLM": "KenLM, 5-grams"}
_NAMES = {**METHODS, **_PIECES, **_OWN}
_MIB = 2**20
_SECONDS = (60, 120, 300, 600)
Point = Tuple[float, float]  # seconds of training, perplexity of a word


class _System(NamedTuple):
    """A model of one program.

    Attributes:
        points: by time.
        peak_mib, disk_mib: memory in training, and the model on the disk.
        exact, unnormalised: words scored a second.
    """

    name: str
    points: Sequence[Point]
    peak_mib: Optional[float]
    disk_mib: float
    exact: Optional[float]
    unnormalised: Optional[float]


def perplexities(*files: Dict[str, Any]) -> List[str]:
    """Tabulate the validation perplexity of a word after so many seconds of processor time."""
    titles = ["validation PPL of a word after", *(f"{limit} s" for limit in _SECONDS)]
    lines = [[s.name, *(_after(s.points, limit) for limit in _SECONDS)] for s in _systems(files)]
    return table(titles, lines)


def costs(*files: Dict[str, Any]) -> List[str]:
    """Tabulate memory, size and speed of scoring."""
    titles = ["", "peak MiB", "MiB on disk", "words scored/s", "without a softmax"]
    forms = (("peak_mib", ",.0f"), ("disk_mib", ",.0f"), ("exact", ",.0f"))
    lines = [
        [s.name, *(number(getattr(s, name), form) for name, form in forms)]
        + [number(s.unnormalised, ",.0f")]
        for s in _systems(files)
    ]
    return table(titles, lines)


_TEXTS = {"ptb": "PTB", "novels": "novels, V = 52,595", "every-word": "novels, every word"}
_STARTS = {"road": "", "reset": ", streams reset"}
_WAYS = {"running": "running text", "lines": "each line by itself"}
_MIXED: Columns = (
    ("processor s", "processor_seconds", ".0f"),
    ("network", "network", ".1f"),
    ("with KenLM", "mixed", ".1f"),
    ("weight of the network", "weight", ".2f"),
)
_UNNORMALISED: Columns = (
    ("network", "network", ".1f"),
    ("with KenLM", "mixed", ".1f"),
    ("sum of the mixture", "sum", ".3f"),
    ("its deviation", "sum_deviation", ".3f"),
)


def mixtures(*files: Dict[str, Any], unnormalised: bool = False) -> List[str]:
    """Tabulate networks of compare.py, alone and mixed with KenLM, by text and updates."""
    lines: Dict[str, Dict[str, List[float]]] = {}
    for file in files:
        for way, title in _WAYS.items():
            for run in (run for run in file["mixtures"] if way in run):
                start = _STARTS[run["label"].partition("@")[0]]
                label = f"{_TEXTS[file['text']]}, {title}, {run['updates']:,} updates{start}"
                found = run[way]["valid"]
                values = {**run, **(found["unnormalised"] if unnormalised else found)}
                row = lines.setdefault(label, {})
                for _, name, _ in _UNNORMALISED if unnormalised else _MIXED:
                    row.setdefault(name, []).append(values[name])
    columns = _UNNORMALISED if unnormalised else _MIXED
    return measured([""], columns, [([label], row) for label, row in lines.items()])


def _systems(files: Sequence[Dict[str, Any]]) -> List[_System]:
    tokens: Dict[str, int] = {}
    for file in files:
        tokens.update(file.get("tokens", {}))
    found = []
    for file in files:
        found += [_of_fairseq(run, tokens) for run in file.get("runs", [])]
        found += [_of_peer(*one) for one in file.get("systems", {}).items()]
    return found


def _of_fairseq(run: Dict[str, Any], tokens: Dict[str, int]) -> _System:
    label = run["label"].partition("@")[0]
    pieces = next((count for name, count in tokens.items() if name.endswith(f"-{label}")), None)
    ratio = pieces / tokens["words"] if pieces else 1.0  # pieces of a word
    curve = run["train"]["curve"]
    points = [(one["processor_seconds"], one["ppl"] ** ratio) for one in curve]
    speeds = [run.get(f"{way}_tokens_per_second") for way in ("exact", "unnormalised")]
    exact, unnormalised = (speed and speed / ratio for speed in speeds)
    disk = 4 * run["parameters"] / _MIB
    return _System(_NAMES[label], points, run["peak_mib"], disk, exact, unnormalised)


def _of_peer(name: str, found: Dict[str, Any]) -> _System:
    points = [(point["seconds"], point["ppl"]) for point in found.get("curve", [])]
    points = points or [(found["seconds"], found["valid_ppl"])]
    peak, disk = found["peak_bytes"] / _MIB, found["disk_bytes"] / _MIB
    speeds = [found["words_per_processor_second"], None]
    exact, unnormalised = reversed(speeds) if name.endswith("NCE") else speeds
    return _System(_NAMES.get(name, name), points, peak, disk, exact, unnormalised)


def _after(points: Sequence[Point], seconds: float) -> str:
    """Return the perplexity then, its logarithm interpolated; the last one of a finished model."""
    for (x, left), (y, right) in zip(points, points[1:]):
        if x <= seconds <= y:
            share = (seconds - x) / (y - x)
            return number(math.exp(math.log(left) + share * math.log(right / left)), ".1f")
    return number(points[-1][1] if points[-1][0] < seconds else None, ".1f")
