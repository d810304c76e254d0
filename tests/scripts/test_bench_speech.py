"""bench.py speech: its parts, and all of it with a stub of a voice and a recogniser."""

import json
import math

import forks
import pytest
from experiments.benches import speech as speech_bench
from rendering.tables import TABLES
from speech import lattice, sentences, sound
from stubs_of_speech import stub_voice, write_novels

# ---------------------------------------------------------------- sentences


SPOKEN = [
    ("`` i do n't know , '' said he .", "i don't know said he", "i don't know, said he."),
    (
        "the captain 's arm-chair was empty to-day -- he can not come !",
        "the captain's arm chair was empty today he cannot come",
        "the captain's arm chair was empty today, he cannot come!",
    ),
    ("'t is the boys ' boat ...", "tis the boys boat", "'tis the boys boat..."),
]


@pytest.mark.parametrize("line, words, spoken", SPOKEN)
def test_a_sentence_as_words_and_as_a_voice_reads_it(line, words, spoken):
    assert (sentences.normalised(line), sentences.spoken(line)) == (words, spoken)


def test_sentences_that_are_read_otherwise_are_not_drawn():
    lines = ["mr. holmes looked at me for long .", "he had 12 men with him there ."]
    lines += ["too short .", " ".join(["long"] * 26)]
    lines += ["but this one may be spoken .", "`` but this one may be spoken ! ''"]
    words = "but this one may be spoken"
    assert sentences.speakable(lines) == {words: (f"{words}.", words)}


# ---------------------------------------------------------------- lattices

# From <s> (6) by "a" or "the" to "cat" or, past silence or noise, to "cut", and to </s> (0); with
# an edge that no sound belongs to, and a node that leads nowhere.
LATTICE = """\
Nodes 9 (NODEID WORD STARTFRAME FIRST-ENDFRAME LAST-ENDFRAME)
0 </s> 90 99 99 ; 0
1 <sil> 60 69 69 ; 0
2 [NOISE] 60 69 69 ; 0
3 cat(2) 50 89 89 ; 0
4 cut 70 89 89 ; 0
5 a 1 49 49 ; 0
6 <s> 0 0 0 ; 0
7 the 1 49 49 ; 0
8 nowhere 50 60 60 ; 0
Initial 6
Final 0
Edges (FROM-NODEID TO-NODEID ASCORE)
"""
EDGES = {1: {4: -10000, 0: -10000}, 2: {4: -1000}, 3: {0: -50000}, 4: {0: -40000}}
EDGES.update({5: {1: -20000, 2: -20000, 3: -30000, 8: -1}, 6: {5: -10000, 7: -9000}})
EDGES[7] = {3: -30000, 4: -434423808, 1: -21000}
LATTICE += "".join(f"{a} {b} {cost}\n" for a, ends in EDGES.items() for b, cost in ends.items())
WEIGHT = 2.0


def log_prob(before, word):
    """Of a made trigram, for which what is two words back matters."""
    earlier = len(before[0]) if len(before) > 1 else 4
    return -0.1 * (len(word) + 3 * len(before[-1]) + earlier) % 1.7


def all_paths(found, node):
    if node == found.end:
        yield (), 0.0
    for after, heard in found.edges.get(node, {}).items():
        for words, acoustic in all_paths(found, after):
            yield (found.words[after], *words), heard + acoustic


def test_silence_and_noise_are_passed_over():
    found = lattice.parse(LATTICE)
    # Silence is likelier than noise, though this noise sounds better.
    assert found.edges[5][4] == pytest.approx(-30000 * math.log(1.0001) + math.log(0.005))
    assert set(found.edges[7]) == {0, 3, 4}


def test_paths_come_with_their_parts_and_best_first():
    found = lattice.parse(LATTICE)
    best = {}
    for words, acoustic in all_paths(found, found.start):
        best[words[:-1]] = max(acoustic, best.get(words[:-1], -math.inf))
    paths = list(lattice.best_paths(found, log_prob, WEIGHT, limit=1000))
    assert {path.words: pytest.approx(path.acoustic) for path in paths} == best
    assert len(best) == len(paths) == 6
    for words, _, trigram in paths:
        padded = ("<s>", *words, "</s>")
        ends = range(1, len(padded))
        want = sum(log_prob(padded[max(i - 2, 0) : i], padded[i]) for i in ends)
        assert trigram == pytest.approx(want)
    totals = [path.acoustic + WEIGHT * path.trigram for path in paths]
    assert totals[0] == max(totals) and totals[-1] == min(totals)
    assert not list(lattice.best_paths(found, log_prob, WEIGHT, limit=1))


def test_a_sentence_without_hypotheses_keeps_its_place():
    entries = [[sound.Entry("a b", -2.0, -1.0)], [], [sound.Entry("c", -3.0, -1.0)]]
    assert list(speech_bench.moses(entries))[1:] == [
        "1 |||  ||| Acoustic= 0.0000 Trigram= 0.0000 Words= 0 ||| 0.0000",
        "2 ||| c ||| Acoustic= -3.0000 Trigram= -1.0000 Words= 1 ||| -12.5000",
    ]


# ---------------------------------------------------------------- all of it


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Run the bench, and return the folder and what it found."""
    novels, run = write_novels(tmp_path), tmp_path / "run"
    stub_voice(monkeypatch)

    def measure(*more):
        flags = ["--data", novels, "--out", run, "--sentences", 8, *more]
        status, output = forks.script("bench.py", "speech", *flags, cwd=tmp_path)
        assert status == 0, output + (run / "log").read_text("utf-8")
        found = json.loads((run / "speech.json").read_text("utf-8"))
        assert "\n".join(TABLES["speech"](found)) in output
        return run, found

    return measure


def test_the_example_from_novels_to_the_table(example):
    run, found = example("--updates", 3)
    training = set((run / "text" / "train.txt").read_text("utf-8").splitlines())
    references = (run / "text" / "test.ref").read_text("utf-8").splitlines()
    assert len(references) == found["sentences"] == 8 and not training & set(references)
    lengths = [len(line.split()) for line in references]
    wrong = sum((length + 1) // 3 for length in lengths)
    rates = {name: value for name, (value, *_) in found["wer"].items()}
    assert rates["first"] == pytest.approx(100 * wrong / sum(lengths))
    assert rates["oracle"] == 0 and found["words"] == sum(lengths)
    assert {"unnormalized", "exact-half", "exchanged"} < set(rates)
    assert {"exact - first", "exchanged - exact"} < set(found["differences"])
    for name, (value, low, high) in found["differences"].items():
        after, before = name.split(" - ")
        assert value == pytest.approx(rates[after] - rates[before]) and low <= value <= high


@pytest.mark.slow
def test_a_softmax_model_gets_a_reduced_partition_function(example):
    found = example("--model", "softmax", "--updates", 40)[1]["model"]
    assert found["kind"] == "softmax" and found["rows"] == 1 and found["sigma_z"] > 0
