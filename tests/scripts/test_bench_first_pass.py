"""bench.py first-pass: features, CTC training, searches, and the stages with a stub."""

import json
from functools import partial

import bench
import forks
import numpy as np
import pytest
from experiments.benches import first_pass
from rendering.tables import TABLES
from speech import acoustics, searches
from stubs_of_speech import stub_voice, write_novels

# ---------------------------------------------------------------- features


def test_what_is_spelled_is_read():
    spelled = acoustics.spell("he'll see")
    assert [acoustics.TOKENS[token] for token in spelled] == list("he'll|see|")
    # Each for two frames; a blank between equal ones, which would be one otherwise.
    frames = [token for one in spelled for token in (one, one, acoustics.BLANK)]
    assert acoustics.greedy(np.eye(len(acoustics.TOKENS))[frames]) == "he'll see"


# ---------------------------------------------------------------- training


@pytest.fixture
def speech():
    """Each letter has a sound of its own, six frames long."""
    random = np.random.default_rng(1)
    sounds = random.normal(size=(len(acoustics.TOKENS), acoustics.MELS))
    words = ["".join(random.choice(list("abcd"), 3)) for _ in range(48)]
    spoken = [np.repeat(sounds[acoustics.spell(word)], 6, axis=0) for word in words]
    frames = np.concatenate(spoken).astype(np.float16)
    return acoustics.Speech(frames, np.array(list(map(len, spoken))), words)


def test_training_lowers_the_loss(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(acoustics, "SHOWN", 4)
    monkeypatch.setattr(acoustics, "CharacterModel", partial(acoustics.CharacterModel, 16))
    said, path = [], tmp_path / "model.pt"
    acoustics.train(path, speech, 60, said.append)
    losses = [float(line.split(": ")[1].split(" ")[0]) for line in said]
    assert len(losses) == 15 and losses[-1] < 0.5 * losses[0]
    model, stored = acoustics.read_model(path)
    assert stored["update"] == 60 and stored["seconds"] > 0
    emissions = model.emit(speech.features())
    lengths = [len(one) for one in emissions]
    assert lengths == [-(-length // acoustics.SUBSAMPLING) for length in speech.lengths]
    np.testing.assert_allclose(np.exp(emissions[0]).sum(1), 1, rtol=1e-5)


# ---------------------------------------------------------------- searches


@pytest.fixture
def files(language_model, tmp_path, monkeypatch):
    """Of a model whose words are spelled with digits."""
    decoders = pytest.importorskip("test_decoders", exc_type=ImportError)
    monkeypatch.setattr(acoustics, "TOKENS", decoders.TOKENS)
    words = decoders.WORDS[1:]
    from decoders.made import write_arpa

    write_arpa(tmp_path / "arpa", [["w20", "w10"]], words)
    return language_model("lstm_lm"), tmp_path / "arpa", dict.fromkeys(words, 1)


@pytest.mark.parametrize("make", [searches.flashlight, searches.pyctcdecode])
def test_the_language_model_decides_what_sound_leaves_open(make, files):
    from test_decoders import best, emissions

    from fairseq_bnce import Scorer

    search = make("ours", *files)
    search.weigh(1.0, 0.0)
    assert [search.decode(emissions())] == best(Scorer.from_checkpoint(files[0]))


@pytest.mark.parametrize("make", [searches.flashlight, searches.pyctcdecode])
@pytest.mark.parametrize(
    "model", ["none", *(pytest.param(m, marks=pytest.mark.decoders) for m in ("kenlm", "mixed"))]
)
def test_what_was_said_clearly_is_found(make, model, files):
    search = make(model, *files)
    tokens = [token for one in acoustics.spell("w20 w11") for token in (one, acoustics.BLANK)]
    sure = np.log(np.eye(len(acoustics.TOKENS))[tokens] * 0.99 + 1e-4).astype(np.float32)
    search.weigh(0.2, 1.0)
    assert search.decode(sure) == "w20 w11"


# ---------------------------------------------------------------- all of it


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The stages of the example for some systems, after the bench speech's of the model."""
    novels, said = write_novels(tmp_path), stub_voice(monkeypatch, times=400)
    flags = ["--out", "run", "--sentences", 6, "--updates", 3]
    flags += ["--only", "draw", "binarise", "train"]
    status, output = forks.script("bench.py", "speech", "--data", novels, *flags, cwd=tmp_path)
    assert status == 0, output

    def run(systems):
        chosen = dict.fromkeys(systems, ((1.0, 0.5), (0.0,)))
        monkeypatch.setattr(first_pass, "SYSTEMS", chosen)
        flags = ["--data", novels, "--speech", tmp_path / "run", "--out", tmp_path / "first"]
        flags += ["--spoken", 40, "--updates", 2, "--tuned", 3]
        assert bench.main(["first-pass", *map(str, flags)]) == 0
        return json.loads((tmp_path / "first" / "first-pass.json").read_text("utf-8")), said

    return run


def test_the_example_without_a_language_model(example, tmp_path):
    """The stages that need neither flashlight nor pyctcdecode."""
    found, said = example(["greedy"])
    assert set(found["systems"]) == {"greedy"} and found["differences"] == {}
    assert found["sentences"] == 6 and found["acoustics"]["updates"] == 2
    halves = (tmp_path / f"run/text/{half}.spoken" for half in ("tune", "test"))
    spoken = [line for half in halves for line in half.read_text("utf-8").splitlines()]
    assert said[-12:] == spoken and not set(said[:-12]) & set(spoken)


@pytest.mark.slow
def test_the_example_to_the_table(example):
    pytest.importorskip("flashlight.lib.text")
    pytest.importorskip("pyctcdecode")
    systems = [name for name in first_pass.SYSTEMS if not name.endswith(("kenlm", "mixed"))]
    found, _ = example(systems)
    assert list(found["systems"]) == systems
    for name, system in found["systems"].items():
        value, low, high = system["wer"]
        assert low <= value <= high and system["real_time"] > 0
        weighted = found["systems"][name.replace(" exact", "")]  # the unnormalised one as well
        assert all(system[key] == weighted[key] for key in ("lm_weight", "word_score", "tried"))
    name = "flashlight ours - flashlight none"
    before, after = (found["systems"][f"flashlight {one}"]["wer"][0] for one in ("none", "ours"))
    assert found["differences"][name][0] == pytest.approx(after - before)
    assert len(TABLES["first-pass"](found)) == 2 + len(found["systems"])
