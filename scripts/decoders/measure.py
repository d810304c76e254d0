"""Decode with one language model, in a process of its own: its memory is this model's."""

from __future__ import annotations

import gc
import time
from pathlib import Path
from typing import Any, Dict, List

from . import made, ngrams, search

BEAM = 50  # hypotheses


def measure(
    system: str, checkpoint: str, data: str, arpa: str, lexicon: int, seconds: float, **size: int
) -> Dict[str, Any]:
    """Decode all utterances, or as many as the time suffices for; the first is not timed.

    Args:
        system: the language model; see search.make_system.
        data: folder with dict.txt, the commonest words first, and train.txt.
        arpa: the trigram of train.txt, which is made where it is missing.
        lexicon: words that the decoder knows.
        seconds: of processor time; then no more utterance begins.
        size: number and length of the utterances; see made.make.
    """
    dictionary, text = (Path(data, name).read_text("utf-8") for name in ("dict.txt", "train.txt"))
    words = [line.split()[0] for line in dictionary.splitlines()]
    if not Path(arpa).is_file():
        ngrams.write_arpa(Path(arpa), map(str.split, text.splitlines()), words)
    words = words[:lexicon]
    spellings, emitted, counts = made.make(len(words), **size)
    model = search.make_system(system, Path(checkpoint), words, Path(arpa))
    trie = search.smeared_trie(spellings, counts.tolist(), len(made.TOKENS), model)
    decoder = search.decoder(trie, model, BEAM)
    gc.freeze()  # torch's and fairseq's objects stay: no collection need look at them
    decoder.decode(emitted[0].ctypes.data, *emitted[0].shape)
    model.end_utterance()
    results: List[Any] = []
    start = time.process_time()
    for emissions in emitted[1:]:
        results.append(decoder.decode(emissions.ctypes.data, *emissions.shape)[0])
        model.end_utterance()
        if time.process_time() - start > seconds:
            break
    spent = time.process_time() - start
    return {
        "utterances": len(results),
        "processor_seconds": spent,
        "texts": [" ".join(words[w] for w in one.words if w >= 0) for one in results],
    }
