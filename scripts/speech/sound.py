"""Spoken by flite, recognised by pocketsphinx: n-best lists with the parts of their scores."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import wave
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from experiments.command import UsageError

from . import lattice
from .sentences import normalised

VOICE = "slt"
FORM = (16_000, 2, 1)  # samples a second, bytes of each, channels
# The recogniser's own total: sound, and by bestpathlw the trigram.
WEIGHT = 9.5
LIMIT = 100_000  # partial paths looked at in a lattice


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
    """Samples of FORM.

    Raises:
        UsageError: without flite.
    """
    if shutil.which("flite") is None:
        raise UsageError("required flite, which is not installed (Debian: apt-get install flite)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoken.wav"
        subprocess.run(["flite", "-voice", VOICE, "-t", text, "-o", str(path)], check=True)
        with wave.open(str(path)) as sound:
            if (sound.getframerate(), sound.getsampwidth(), sound.getnchannels()) != FORM:
                raise UsageError(f"flite: required {FORM}, as it is, got {sound.getparams()}")
            return sound.readframes(sound.getnframes())


class Recogniser:
    """pocketsphinx with the models that it brings.

    Its own n-best lists leave most of the lattice out, often its own answer too; these are of the
    lattice itself.

    Raises:
        UsageError: without pocketsphinx.
    """

    def __init__(self) -> None:
        try:
            import pocketsphinx
        except ImportError as error:
            raise UsageError(
                "required pocketsphinx, which is not installed: pip install pocketsphinx"
            ) from error
        pocketsphinx.set_loglevel("ERROR")
        self._decoder = pocketsphinx.Decoder()
        self._logs, self._model = self._decoder.get_logmath(), self._decoder.get_lm()
        self._trigram = functools.lru_cache(maxsize=1 << 16)(self._log_prob)

    def recognise(self, samples: bytes, size: int) -> Recognised:
        """Its answer, and up to ``size`` hypotheses that differ as normalised words."""
        self._decoder.start_utt()
        self._decoder.process_raw(samples, full_utt=True)
        self._decoder.end_utt()
        answer = self._decoder.hyp()
        if answer is None:
            return Recognised("", [])
        found: Dict[str, Entry] = {}
        for path in lattice.best_paths(self._lattice(), self._trigram, WEIGHT, LIMIT):
            text = normalised(" ".join(path.words))
            found.setdefault(text, Entry(text, path.acoustic, path.trigram))
            if len(found) == size:
                break
        return Recognised(normalised(answer.hypstr), list(found.values()))

    def _lattice(self) -> lattice.Lattice:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "lattice"
            self._decoder.get_lattice().write(str(path))
            return lattice.parse(path.read_text(encoding="utf-8").splitlines())

    def _log_prob(self, before: Sequence[str], word: str) -> float:
        return self._logs.log_to_ln(self._model.prob([word, *reversed(before)]))
