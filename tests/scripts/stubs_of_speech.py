"""A voice, a recogniser and novels, in the places of flite, pocketsphinx and the real ones."""

from conftest import zipf_lines
from speech import sentences, sound
from tools import write_lines


class Recogniser:
    """Hears every third word wrongly, but has the right sentence among its hypotheses."""

    def recognise(self, samples, size):
        words = sentences.normalised(samples.decode("utf-16-le")).split()
        heard = [word + "x" * (place % 3 == 1) for place, word in enumerate(words)]
        texts = [" ".join(heard), " ".join(words), " ".join(words[1:])]
        entries = [sound.Entry(text, -2.0 - n, -1.0) for n, text in enumerate(texts)]
        return sound.Recognised(texts[0], entries)


def stub_voice(monkeypatch, times=1):
    """Speak the text itself, so many times, and return the list of what is said."""
    said = []

    def speak(text):
        said.append(text)
        return text.encode("utf-16-le") * times

    monkeypatch.setattr(sound, "speak", speak)
    monkeypatch.setattr(sound, "Recogniser", Recogniser)
    return said


def write_novels(tmp_path):
    """As fairseq-bnce get-data mscc leaves it: words of letters."""
    letters = str.maketrans("0123456789", "abcdefghij")
    folder = tmp_path / "mscc" / "text"
    folder.mkdir(parents=True)
    for split, count in (("train", 300), ("valid", 45), ("test", 60)):
        lines = [f"{line.translate(letters)} ." for line in zipf_lines(count, seed=count)]
        write_lines(folder / f"{split}.txt", lines)
    return folder.parent
