"""A voice, a recogniser and novels, in the places of flite, pocketsphinx and the real ones."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

from conftest import zipf_lines
from speech import sentences
from tools import write_lines, write_program

# The sound is the text itself; what is said is noted.
FLITE = """\
import sys, wave
text, path = sys.argv[sys.argv.index("-t") + 1], sys.argv[sys.argv.index("-o") + 1]
assert sys.argv[1:3] == ["-voice", "slt"]
with open({said!r}, "a") as said:
    said.write(text + "\\n")
with wave.open(path, "wb") as sound:
    sound.setnchannels(1)
    sound.setsampwidth(2)
    sound.setframerate({rate})
    sound.writeframes(text.encode("utf-16-le") * {times})
"""


class Decoder:
    """As pocketsphinx's: hears every third word wrongly, but has the right one in its lattice."""

    def start_utt(self):
        self.words = None

    def process_raw(self, samples, full_utt):
        assert full_utt
        self.words = sentences.normalised(samples.decode("utf-16-le")).split()

    def end_utt(self):
        heard = [word + "x" * (place % 3 == 1) for place, word in enumerate(self.words)]
        self.answer = SimpleNamespace(hypstr=" ".join(heard)) if heard else None

    def hyp(self):
        return self.answer

    def get_lattice(self):
        return self

    def write(self, path):
        """Node 2i + 1 is a word as it is, 2i + 2 as it is mistaken."""
        end = 2 * len(self.words) + 1
        words = [word for right in self.words for word in (right, f"{right}x(2)")]
        nodes = enumerate(["<s>", *words, "</s>"])
        lines = ["Nodes", *(f"{node} {word} {node} 0 0 ; 0" for node, word in nodes), "Initial 0"]
        lines += [f"Final {end}", "Edges"]
        for node in range(end):
            first = (node + 1) // 2 * 2 + 1
            costs = (-3000, -2000) if first // 2 % 3 == 1 else (-1000, -4000)
            edges = [f"{node} {first + n} {cost}" for n, cost in enumerate(costs)]
            lines += edges if first < end else [f"{node} {end} -1000"]
        Path(path).write_text("\n".join([*lines, "End"]), "utf-8")

    def get_logmath(self):
        return SimpleNamespace(log_to_ln=lambda log: log / 2)

    def get_lm(self):
        return SimpleNamespace(prob=lambda words: -len(words))


def stub_voice(tmp_path, monkeypatch):
    """The file of what was said, with stubs of flite and pocketsphinx in their places."""
    module = SimpleNamespace(Decoder=Decoder, set_loglevel=lambda level: None)
    monkeypatch.setitem(sys.modules, "pocketsphinx", module)
    folder, said = tmp_path / "bin", tmp_path / "said"
    folder.mkdir()
    write_flite(folder, said, rate=16_000)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return said


def write_flite(folder, said, rate, times=1):
    write_program(folder / "flite", FLITE.format(said=str(said), rate=rate, times=times))


def write_novels(tmp_path):
    """As fairseq-bnce get-data mscc leaves it: words of letters."""
    letters = str.maketrans("0123456789", "abcdefghij")
    folder = tmp_path / "mscc" / "text"
    folder.mkdir(parents=True)
    for split, count in (("train", 300), ("valid", 45), ("test", 60)):
        lines = [f"{line.translate(letters)} ." for line in zipf_lines(count, seed=count)]
        write_lines(folder / f"{split}.txt", lines)
    return folder.parent
