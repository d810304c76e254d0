#!/usr/bin/env python3
"""Measure beam search with word-level language models: ours, fairseq's way, KenLM.

    bench_decoding.py --out FOLDER

flashlight's LexiconDecoder decodes made emissions over a made lexicon, with an lstm_lm of V words
that was trained for a moment on Zipf-distributed words: how fast it decodes does not depend on what
it has learned. Emissions, lexicon and beam are the same for each system and V:

    ours         FlashlightLM, unnormalised
    ours exact   FlashlightLM with the softmax's normaliser: V-sized work for
                 each context
    prefix       as FairseqLM in fairseq's examples/speech_recognition: the
                 words so far are read again for every new context, and the
                 whole softmax is taken and kept
    kenlm        a trigram of the same text, in flashlight's own KenLM

Each system runs in a process of its own, for so many utterances or seconds of processor time,
whichever ends first. All take turns, --repeats times, and of each the fastest run counts.

FOLDER gets decoding.json, with the texts that were found, and data, models and logs, which a second
call does not make again. It needs flashlight-text.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Sequence

import environment  # noqa: F401
from experiments import command, machine, report
from experiments.made import Workshop
from experiments.recipes import words
from rendering import decoding

_MEASURE = Path(__file__).with_name("decoders") / "measure.py"
_FLAGS = [*words(report.load("recipes")["scoring"]), "--cpu"]


def main(arguments: Sequence[str]) -> int:
    """Measure all systems, and return 0."""
    options = _parser().parse_args(arguments)
    shop = Workshop(options.out, options.threads)
    wanted = list(itertools.product(decoding.SYSTEMS, options.vocab))
    rounds = [[_decode(shop, options, *which) for which in wanted] for _ in range(options.repeats)]
    runs = [max(same, key=decoding.rate) for same in zip(*rounds)]
    where = {**machine.record(), "load": os.getloadavg()}
    flags = {name: value for name, value in vars(options).items() if name != "out"}
    found = {"runs": runs, "machine": where, "flags": flags}
    print(report.write(options.out / "decoding", ["\n".join(decoding.speeds(found))], found))
    return 0


def _decode(shop: Workshop, options: argparse.Namespace, system: str, vocab: int) -> Dict[str, Any]:
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
    command.say(f"{system}, V = {vocab:,}: {decoding.rate(found):.2f} utterances a second")
    return {"system": system, "vocab": vocab, **found, "peak_mib": ended.peak_bytes / report.MIB}


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--vocab", type=int, nargs="+", default=[50_000, 200_000], help="types")
    add("--lexicon", type=int, default=49_000, help="words, the commonest")
    add("--tokens", type=int, default=400_000, help="of the training data")
    add("--utterances", type=int, default=100, help="of each at most; the first is not timed")
    add("--seconds", type=float, default=20, help="of each at most")
    add("--length", type=int, default=20, help="words of an utterance")
    add("--repeats", type=int, default=3, help="of each; the fastest counts")
    return parser


if __name__ == "__main__":
    command.start(main)
