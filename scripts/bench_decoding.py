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

from experiments import command, machine, processes, sentences, tables
from experiments.recipes import words
from experiments.run import make_data
from rendering import decoding

_HERE = Path(__file__).resolve().parent
SYSTEMS = ("ours", "ours exact", "prefix", "kenlm")
_RECIPE = tables.load("recipes")["scoring"]  # bench_scoring.py's


class Bench:
    """Makes what is missing, and measures.

    Args:
        options: of the command line.
    """

    def __init__(self, options: argparse.Namespace):
        self.options, self.out, self.threads = options, options.out, options.threads
        self.log = self.out / "runs.log"

    def runs(self) -> List[Dict[str, Any]]:
        """Of each system at each V, the fastest of all rounds."""
        wanted = list(itertools.product(self.options.systems, self.options.vocab))
        rounds = [[self._run(*which) for which in wanted] for _ in range(self.options.repeats)]
        return [max(same, key=decoding.rate) for same in zip(*rounds)]

    def _run(self, system: str, vocab: int) -> Dict[str, Any]:
        checkpoint, arpa, words = self._model(vocab), self._arpa(vocab), self._words(vocab)
        result = self.out / f"{system.replace(' ', '-')}-{vocab}.json"
        flags = ["--out", result, "--system", system, "--checkpoint", checkpoint]
        flags += ["--arpa", arpa, "--words", words]
        for name in ("lexicon", "utterances", "seconds", "length", "noise", "beam"):
            flags += [f"--{name}", getattr(self.options, name)]
        ended = self._python("decoders/measure.py", *flags)
        found = json.loads(result.read_text(encoding="utf-8"))
        found["peak_mib"] = ended.peak_bytes / tables.MIB
        rate = decoding.rate(found)
        command.say(f"{system}, V = {vocab:,}: {rate:.2f} utterances a processor second")
        return {"system": system, "vocab": vocab, **found}

    def _model(self, vocab: int) -> Path:
        size = self.options.size
        checkpoint = self.out / f"model-{size}-{self._of(vocab)}" / "checkpoint_last.pt"
        flags = words([_RECIPE["models"]["lstm_lm"].format(d=size), _RECIPE["training"], "--cpu"])
        sentences.train(self._data(vocab), checkpoint, flags, self.log, self.threads)
        return checkpoint

    def _data(self, vocab: int) -> Path:
        folder = self.out / f"data-{self._of(vocab)}"
        return make_data(folder, self.log, self.threads, vocab=vocab, tokens=self.options.tokens)

    def _words(self, vocab: int) -> Path:
        """The dictionary's, the commonest first."""
        path = self.out / f"words-{self._of(vocab)}.txt"
        if not path.is_file():
            lines = (self._data(vocab) / "dict.txt").read_text(encoding="utf-8").splitlines()
            words = [line.split()[0] for line in lines]
            path.write_text("\n".join(words) + "\n", encoding="utf-8")
        return path

    def _arpa(self, vocab: int) -> Path:
        path = self.out / f"trigram-{self._of(vocab)}.arpa"
        if "kenlm" in self.options.systems and not path.is_file():
            text = self.out / f"text-{self._of(vocab)}.txt"
            sentences.write_text(self._data(vocab), "train", text, self.log, self.threads)
            self._python("decoders/ngrams.py", text, self._words(vocab), path)
        return path

    def _of(self, vocab: int) -> str:
        """What made data, and all that is made of it, depend on."""
        return f"{vocab}-{self.options.tokens}"

    def _python(self, script: str, *arguments: Any) -> processes.Ended:
        line = [sys.executable, *map(str, (_HERE / script, *arguments))]
        return processes.run(line, self.log, self.threads)


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 2 for what can't be done, 130 if interrupted."""
    options = _parser().parse_args(arguments)
    return command.status(lambda: _measure(options))


def _measure(options: argparse.Namespace) -> int:
    words = min(options.vocab) - 4  # less fairseq's specials
    if options.lexicon > words:
        raise command.UsageError(
            f"--lexicon: required at most the {words:,} words of the smallest --vocab, got "
            f"{options.lexicon:,}"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    runs, where = Bench(options).runs(), {**machine.record(), "load": os.getloadavg()}
    found = {"runs": runs, "machine": where, "flags": _flags(options)}
    content = json.dumps(found, indent=1)
    (options.out / "decoding.json").write_text(content + "\n", encoding="utf-8")
    print("\n".join(decoding.speeds(found)))
    return 0


def _flags(options: argparse.Namespace) -> Dict[str, Any]:
    return {name: value for name, value in vars(options).items() if name != "out"}


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
