"""Beam search with word-level language models: each system at each V in a process of its own."""

import itertools
from typing import Any, Dict

from rendering.cells import NAMES
from rendering.tables import rate

from .. import command, processes, report
from ..workshop import Workshop


def measure(options: Any) -> Dict[str, Any]:
    """Measure all systems; of each the fastest run counts."""
    shop = Workshop(options)
    wanted = list(itertools.product(NAMES["searched"], options.vocab))
    rounds = [[_decode(shop, options, *which) for which in wanted] for _ in range(options.repeats)]
    return {"runs": [max(same, key=rate) for same in zip(*rounds)]}


def _decode(shop: Workshop, options: Any, system: str, vocab: int) -> Dict[str, Any]:
    data, name = shop.corpus(vocab, options.tokens), f"{vocab}-{options.tokens}"
    task = {
        "system": system,
        "checkpoint": shop.model(data, name, report.load("recipes")["scoring"], "--cpu"),
        "data": data,
        "arpa": shop.out / f"trigram-{name}.arpa",
        **{flag: getattr(options, flag) for flag in ("lexicon", "utterances", "seconds", "length")},
    }
    out = shop.out / f"{system.replace(' ', '-')}-{vocab}.json"
    found, ended = processes.call("decoders.made.measure", out, options.threads, **task)
    command.say(f"{system}, V = {vocab:,}: {rate(found):.2f} utterances a second")
    return {"system": system, "vocab": vocab, **found, "peak_mib": ended.peak_bytes / report.MIB}
