"""Speech by flite, recognised by pocketsphinx: n-best lists with the parts of their scores."""

import functools
import subprocess
import tempfile
import wave
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from . import lattice
from .sentences import normalised

VOICE = "slt"
# The weight of the trigram in the recogniser's own total (its bestpathlw).
WEIGHT = 9.5
LIMIT = 100_000  # partial paths in the search of a lattice


class Entry(NamedTuple):
    """A hypothesis; nats.

    Attributes:
        text: normalised.
        acoustic: log-probability of the sound.
        trigram: of the words as they were recognised, and the sentence's end.
    """

    text: str
    acoustic: float
    trigram: float

    @property
    def total(self) -> float:
        return self.acoustic + WEIGHT * self.trigram


class Recognised(NamedTuple):
    """The recogniser's own answer, normalised, and the best hypotheses of its lattice."""

    text: str
    entries: List[Entry]


def speak(text: str) -> bytes:
    """Return the samples of a spoken text: 16-bit, one channel, 16,000 a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoken.wav"
        subprocess.run(["flite", "-voice", VOICE, "-t", text, "-o", str(path)], check=True)
        with wave.open(str(path)) as sound:
            return sound.readframes(sound.getnframes())


class Recogniser:
    """pocketsphinx with its own models.

    pocketsphinx's n-best lists leave out most of the lattice, often even its own answer. We search
    the lattice instead.
    """

    def __init__(self) -> None:
        import pocketsphinx

        pocketsphinx.set_loglevel("ERROR")
        self._decoder = pocketsphinx.Decoder()
        logs, model = self._decoder.get_logmath(), self._decoder.get_lm()

        @functools.lru_cache(maxsize=1 << 16)
        def trigram(before: Sequence[str], word: str) -> float:
            return logs.log_to_ln(model.prob([word, *reversed(before)]))

        self._trigram = trigram

    def recognise(self, samples: bytes, size: int) -> Recognised:
        """Return the answer, and up to ``size`` hypotheses with different normalised words."""
        self._decoder.start_utt()
        self._decoder.process_raw(samples, full_utt=True)
        self._decoder.end_utt()
        answer = self._decoder.hyp()
        if answer is None:
            return Recognised("", [])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lattice"
            self._decoder.get_lattice().write(str(path))
            heard = lattice.parse(path.read_text(encoding="utf-8"))
        found: Dict[str, Entry] = {}
        for words, acoustic, language in lattice.best_paths(heard, self._trigram, WEIGHT, LIMIT):
            text = normalised(" ".join(words))
            found.setdefault(text, Entry(text, acoustic, language))
            if len(found) == size:
                break
        return Recognised(normalised(answer.hypstr), list(found.values()))
