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

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

from experiments import command, machine, tables
from experiments.recipes import words
from experiments.sentences import Workshop
from rendering import decoding

_DECODERS = Path(__file__).with_name("decoders")
SYSTEMS = ("ours", "ours exact", "prefix", "kenlm")
_RECIPE = tables.load("recipes")["scoring"]  # bench_scoring.py's


class Bench(Workshop):
    """Decodes in a folder.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace):
        super().__init__(options.out, options.threads)
        self.options = options

    def runs(self) -> List[Dict[str, Any]]:
        """Return the fastest run of each system at each V."""
        wanted = list(itertools.product(self.options.systems, self.options.vocab))
        rounds = [[self._decode(*which) for which in wanted] for _ in range(self.options.repeats)]
        return [max(same, key=decoding.rate) for same in zip(*rounds)]

    def _decode(self, system: str, vocab: int) -> Dict[str, Any]:
        data = self.data(vocab, self.options.tokens)
        name, size = f"{vocab}-{self.options.tokens}", self.options.size
        known = self.out / f"words-{name}.txt"  # the commonest first
        lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines()
        known.write_text("".join(f"{line.split()[0]}\n" for line in lines), encoding="utf-8")
        flags = words([_RECIPE["models"]["lstm_lm"].format(d=size), _RECIPE["training"], "--cpu"])
        places = ["--checkpoint", self.model(data, f"{size}-{name}", flags), "--words", known]
        arpa = self.out / f"trigram-{name}.arpa"
        if system == "kenlm" and not arpa.is_file():
            text = self.text(data, "train", name)
            self.run(sys.executable, _DECODERS / "ngrams.py", text, known, arpa)
        places += ["--system", system, "--arpa", arpa]
        for flag in ("lexicon", "utterances", "seconds", "length", "noise", "beam"):
            places += [f"--{flag}", getattr(self.options, flag)]
        result = self.out / f"{system.replace(' ', '-')}-{vocab}.json"
        ended = self.run(sys.executable, _DECODERS / "measure.py", "--out", result, *places)
        found = json.loads(result.read_text(encoding="utf-8"))
        rate = decoding.rate(found)
        command.say(f"{system}, V = {vocab:,}: {rate:.2f} utterances a processor second")
        return {
            "system": system,
            "vocab": vocab,
            **found,
            "peak_mib": ended.peak_bytes / tables.MIB,
        }


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 2 after an error, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    return command.status(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> int:
    words = min(options.vocab) - 4  # without fairseq's specials
    if options.lexicon > words:
        raise command.UsageError(
            f"--lexicon: required at most the {words:,} words of the smallest --vocab, got "
            f"{options.lexicon:,}"
        )
    runs, where = Bench(options).runs(), {**machine.record(), "load": os.getloadavg()}
    flags = {name: value for name, value in vars(options).items() if name != "out"}
    found = {"runs": runs, "machine": where, "flags": flags}
    content = json.dumps(found, indent=1)
    (options.out / "decoding.json").write_text(content + "\n", encoding="utf-8")
    print("\n".join(decoding.speeds(found)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("--vocab", type=int, nargs="+", default=[50_000, 200_000], help="types")
    add("--lexicon", type=int, default=49_000, help="words, the commonest (default: %(default)s)")
    names: Dict[str, Any] = {
        "nargs": "+",
        "choices": SYSTEMS,
        "default": list(SYSTEMS),
        "metavar": "SYSTEM",
    }
    add("--systems", **names, help=f"some of {', '.join(SYSTEMS)} (default: all)")
    add("--size", type=int, default=200, help="of the LSTM's 2 layers (default: %(default)s)")
    add("--tokens", type=int, default=400_000, help="of the training data (default: %(default)s)")
    about = "of each at most, the first of which is not timed (default: %(default)s)"
    add("--utterances", type=command.at_least(2), default=100, help=about)
    add("--seconds", type=float, default=20, help="of each at most (default: %(default)s)")
    add("--length", type=int, default=20, help="words of an utterance (default: %(default)s)")
    add("--noise", type=float, default=2.0, help="of the emissions (default: %(default)s)")
    add("--beam", type=int, default=50, help="hypotheses (default: %(default)s)")
    add("--repeats", type=int, default=3, help="of each, the fastest counts (default: 3)")
    return parser


if __name__ == "__main__":
    command.start(main)
