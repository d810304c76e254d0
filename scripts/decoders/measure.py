#!/usr/bin/env python3
"""Decode with one language model, and write what it took as JSON.

    measure.py --out FILE --system NAME --checkpoint FILE --arpa FILE --words FILE ...

A command of its own, so that its memory is this language model's.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

sys.path[:0] = map(str, Path(__file__).resolve().parents[1:3])  # scripts/, and the checkout
from decoders import made, search, systems  # noqa: E402


def main(arguments: Sequence[str]) -> None:
    """Write the file after ``--out``."""
    options = _parser().parse_args(arguments)
    words = options.words.read_text(encoding="utf-8").split()[: options.lexicon]
    task = made.make(words, options.utterances, options.length, options.noise)
    system = systems.make(options.system, options.checkpoint, words, options.arpa)
    trie = search.smeared_trie(task.spellings, task.counts.tolist(), len(made.TOKENS), system)
    decoder = search.decoder(trie, system, options.beam)
    gc.freeze()  # torch's and fairseq's objects stay: no collection need look at them
    found = decode(decoder, task, system, options.seconds)
    options.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__)
    add = found.add_argument
    for name in ("out", "checkpoint", "arpa", "words"):
        add(f"--{name}", type=Path, required=True)
    add("--system", required=True)
    add("--lexicon", type=int, required=True, help="words, the first of --words")
    add("--utterances", type=int, required=True)
    add("--seconds", type=float, required=True, help="of processor time, then no more begins")
    add("--length", type=int, required=True, help="words of an utterance")
    add("--noise", type=float, required=True)
    add("--beam", type=int, required=True)
    return found


def decode(decoder: Any, task: made.Made, system: systems.System, seconds: float) -> Dict[str, Any]:
    """All utterances, or as many as the time suffices for; the first is not timed."""
    decoder.decode(task.emissions[0].ctypes.data, *task.emissions[0].shape)
    system.end_utterance()
    words, contexts = system.counts()
    results: List[Any] = []
    start, wall = time.process_time(), time.perf_counter()
    for emissions in task.emissions[1:]:
        results.append(decoder.decode(emissions.ctypes.data, *emissions.shape)[0])
        system.end_utterance()
        if time.process_time() - start > seconds:
            break
    spent = time.process_time() - start
    scored, read = system.counts()
    texts = [[task.words[w] for w in result.words if w >= 0] for result in results]
    return {
        "utterances": len(results),
        "processor_seconds": spent,
        "seconds": time.perf_counter() - wall,
        "words_scored": scored - words,
        "contexts_read": read - contexts,
        "texts": [" ".join(text) for text in texts],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
