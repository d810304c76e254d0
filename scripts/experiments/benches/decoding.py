"""Beam search with word-level language models: each system at each V in a process of its own."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any, Dict

from rendering.rows import SEARCHED, rate

from .. import command, report
from ..made import Workshop
from ..recipes import words

_MEASURE = Path(__file__).parents[2] / "decoders" / "measure.py"
_FLAGS = [*words(report.load("recipes")["scoring"]), "--cpu"]


def measure(options: Any) -> Dict[str, Any]:
    """Measure all systems; of each the fastest run counts."""
    shop = Workshop(options.out, options.threads)
    wanted = list(itertools.product(SEARCHED, options.vocab))
    rounds = [[_decode(shop, options, *which) for which in wanted] for _ in range(options.repeats)]
    return {"runs": [max(same, key=rate) for same in zip(*rounds)]}


def _decode(shop: Workshop, options: Any, system: str, vocab: int) -> Dict[str, Any]:
    data, name = shop.data(vocab, options.tokens), f"{vocab}-{options.tokens}"
    task = {
        "system": system,
        "checkpoint": str(shop.model(data, name, _FLAGS)),
        "data": str(data),
        "arpa": str(shop.out / f"trigram-{name}.arpa"),
        **{flag: getattr(options, flag) for flag in ("lexicon", "utterances", "seconds", "length")},
    }
    out = shop.out / f"{system.replace(' ', '-')}-{vocab}.json"
    ended = shop.run(sys.executable, _MEASURE, json.dumps(task), out)
    found = json.loads(out.read_text(encoding="utf-8"))
    command.say(f"{system}, V = {vocab:,}: {rate(found):.2f} utterances a second")
    return {"system": system, "vocab": vocab, **found, "peak_mib": ended.peak_bytes / report.MIB}
