#!/usr/bin/env python3
"""Measure beam search with word-level language models: ours, fairseq's way, KenLM.

    bench_decoding.py --out FOLDER
    bench_decoding.py --out FOLDER --vocab 50000 --systems ours prefix

flashlight's LexiconDecoder decodes made emissions over a made lexicon, with an
lstm_lm of V words that was trained for a moment on Zipf-distributed words: how
fast it decodes does not depend on what it has learned. The same emissions,
lexicon and beam for each, and at every V (--lexicon):

    ours         FlashlightLM, unnormalised
    ours exact   FlashlightLM with the softmax's normaliser, V-sized work for
                 every context
    prefix       as FairseqLM in fairseq's examples/speech_recognition: the
                 words so far read again for every new context, the whole
                 softmax taken and kept
    kenlm        a trigram of the same text, in flashlight's own KenLM

Each runs in a process of its own, for so many utterances or seconds of
processor time, whichever ends first; rates are over processor time, which
other processes lengthen less than the clock's. All take turns, --repeats
times, and of each the fastest counts.

FOLDER gets decoding.json, with the texts that were found, and data, models and
logs, which a second call does not make again. It needs flashlight-text.
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

_DECODERS = Path(__file__).with_name("decoders")
SYSTEMS = ("ours", "ours exact", "prefix", "kenlm")
_RECIPE = report.load("recipes")["scoring"]  # bench_scoring.py's


def main(arguments: Sequence[str]) -> int:
    """Measure all systems, and return 0."""
    options = _parser().parse_args(arguments)
    types = min(options.vocab) - 4  # without fairseq's specials
    if options.lexicon > types:
        raise command.UsageError(
            f"--lexicon: required at most the {types:,} words of the smallest --vocab, got "
            f"{options.lexicon:,}"
        )
    shop = Workshop(options.out, options.threads)
    wanted = list(itertools.product(options.systems, options.vocab))
    rounds = [[_decode(shop, options, *which) for which in wanted] for _ in range(options.repeats)]
    runs = [max(same, key=decoding.rate) for same in zip(*rounds)]
    where = {**machine.record(), "load": os.getloadavg()}
    flags = {name: value for name, value in vars(options).items() if name != "out"}
    found = {"runs": runs, "machine": where, "flags": flags}
    table = "\n".join(decoding.speeds(found))
    report.write(options.out / "decoding", [table], found)
    print(table)
    return 0


def _decode(shop: Workshop, options: argparse.Namespace, system: str, vocab: int) -> Dict[str, Any]:
    data, name = shop.data(vocab, options.tokens), f"{vocab}-{options.tokens}"
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines()
    known = [line.split()[0] for line in lines]  # the commonest first
    recipe = [_RECIPE["models"]["lstm_lm"].format(d=options.size), _RECIPE["training"], "--cpu"]
    checkpoint = shop.model(data, f"{options.size}-{name}", words(recipe))
    arpa = shop.out / f"trigram-{name}.arpa"
    if system == "kenlm" and not arpa.is_file():
        vocabulary = shop.out / f"words-{name}.txt"
        vocabulary.write_text("\n".join(known), encoding="utf-8")
        text = shop.text(data, "train", name)
        shop.run(sys.executable, _DECODERS / "ngrams.py", text, vocabulary, arpa)
    places = {"system": system, "checkpoint": str(checkpoint), "arpa": str(arpa)}
    same = ("utterances", "seconds", "length", "noise", "beam")
    task = {**places, "words": known[: options.lexicon]}
    task.update({flag: getattr(options, flag) for flag in same})
    given, out = shop.out / "task.json", shop.out / f"{system.replace(' ', '-')}-{vocab}.json"
    given.write_text(json.dumps(task), encoding="utf-8")
    ended = shop.run(sys.executable, _DECODERS / "measure.py", given, out)
    found = json.loads(out.read_text(encoding="utf-8"))
    rate = decoding.rate(found)
    command.say(f"{system}, V = {vocab:,}: {rate:.2f} utterances a processor second")
    peak = ended.peak_bytes / report.MIB
    return {"system": system, "vocab": vocab, **found, "peak_mib": peak}


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add, default = parser.add_argument, "(default: %(default)s)"
    add("--vocab", type=int, nargs="+", default=[50_000, 200_000], help="types")
    add("--lexicon", type=int, default=49_000, help=f"words, the commonest {default}")
    names: Dict[str, Any] = {"nargs": "+", "choices": SYSTEMS, "default": list(SYSTEMS)}
    about = f"some of {', '.join(SYSTEMS)} (default: all)"
    add("--systems", **names, metavar="SYSTEM", help=about)
    add("--size", type=int, default=200, help=f"of the LSTM's 2 layers {default}")
    add("--tokens", type=int, default=400_000, help=f"of the training data {default}")
    about = f"of each at most, the first of which is not timed {default}"
    add("--utterances", type=command.at_least(2), default=100, help=about)
    add("--seconds", type=float, default=20, help=f"of each at most {default}")
    add("--length", type=int, default=20, help=f"words of an utterance {default}")
    add("--noise", type=float, default=2.0, help=f"of the emissions {default}")
    add("--beam", type=int, default=50, help=f"hypotheses {default}")
    add("--repeats", type=int, default=3, help="of each, the fastest counts (default: 3)")
    return parser


if __name__ == "__main__":
    command.start(main)
