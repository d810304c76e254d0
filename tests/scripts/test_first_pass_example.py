"""scripts/first_pass_example.py: features, CTC training, searches, and the stages with a stub."""

import itertools
import json
from functools import partial

import first_pass_example
import forks
import numpy as np
import pytest
import torch
from decoders import ngrams
from rendering import decoding
from speech import acoustics, features, searches, training
from stubs_of_speech import stub_voice, write_flite, write_novels

# ---------------------------------------------------------------- features


def test_a_tone_is_loud_in_its_band_alone():
    """1,500 Hz in the second half of two seconds."""
    times = np.arange(2 * features.RATE) / features.RATE
    tone = np.sin(2 * np.pi * 1500 * times) * (times > 1)
    found = features.log_mels((tone * 2**14).astype("<i2").tobytes())
    assert found.shape == (201, features.MELS) and found.dtype == np.float16
    np.testing.assert_allclose(found.astype(float).mean(0), 0, atol=1e-2)
    filters = features.mel_filters()
    assert (filters.sum(1) > 0).all()
    band = filters[:, round(1500 * features.BINS / features.RATE)].argmax().item()
    mels = 1127 * np.log1p(np.array([60, 1500, 8000]) / 700)
    place = (mels[1] - mels[0]) / (mels[2] - mels[0]) * (features.MELS + 1) - 1
    assert abs(band - place) < 1
    assert found[120:190, band].min() > 0.9 and found[10:90, band].max() < -0.9


def test_what_is_spelled_is_read():
    spelled = acoustics.spell("he'll see")
    assert [acoustics.TOKENS[token] for token in spelled] == list("he'll|see|")
    # Each for two frames; a blank between equal ones, which would be one otherwise.
    frames = [token for one in spelled for token in (one, one, acoustics.BLANK)]
    assert acoustics.greedy(np.eye(len(acoustics.TOKENS))[frames]) == "he'll see"
    merged = [token for one in spelled for token in (one, one)]
    assert acoustics.greedy(np.eye(len(acoustics.TOKENS))[merged]) == "he'l se"
    assert acoustics.greedy(np.eye(len(acoustics.TOKENS))[[0, 0]]) == ""


# ---------------------------------------------------------------- training


@pytest.fixture
def speech():
    """Each letter has a sound of its own, six frames long."""
    random = np.random.default_rng(1)
    sounds = random.normal(size=(len(acoustics.TOKENS), features.MELS))
    words = ["".join(random.choice(list("abcd"), 3)) for _ in range(48)]
    spoken = [np.repeat(sounds[acoustics.spell(word)], 6, axis=0) for word in words]
    frames = np.concatenate(spoken).astype(np.float16)
    return features.Speech(frames, np.array(list(map(len, spoken))), words)


@pytest.fixture
def train(speech, tmp_path, monkeypatch):
    """A training of a small model: its losses, and what it left."""
    monkeypatch.setattr(training, "SAVED", 4)
    small = partial(acoustics.CharacterModel, 16)
    for module in (acoustics, training):
        monkeypatch.setattr(module, "CharacterModel", small)
    path, said = tmp_path / "model.pt", []

    def run(updates, until=None):
        every = training.batches(speech.lengths)
        with monkeypatch.context() as patch:
            patch.setattr(training, "batches", lambda lengths: itertools.islice(every, until))
            training.Training(path, speech, updates).run(speech, said.append)
        losses = [float(line.split(": ")[1].split(" ")[0]) for line in said]
        return losses, acoustics.stored(path)

    run.path = path
    return run


def test_training_lowers_the_loss(train, speech):
    losses, stored = train(60)
    assert len(losses) == 15 and losses[-1] < 0.5 * losses[0]
    assert stored["update"] == 60 and stored["seconds"] > 0
    model = acoustics.read(train.path)
    emissions = acoustics.emit(model, speech.features())
    lengths = [len(one) for one in emissions]
    assert lengths == [-(-length // acoustics.SUBSAMPLING) for length in speech.lengths]
    np.testing.assert_allclose(np.exp(emissions[0]).sum(1), 1, rtol=1e-5)


def test_a_training_that_was_interrupted_is_the_same(train):
    _, whole = train(8)
    train.path.unlink()
    assert train(8, until=4)[1]["update"] == 4
    losses, again = train(8)
    assert again["update"] == 8 and len(losses) == 4  # from scratch it would tell of five
    for name, values in whole["model"].items():
        assert torch.equal(values, again["model"][name]), name


def test_batches_have_all_sentences_and_begin_with_the_shortest():
    lengths = np.random.default_rng(1).integers(50, 500, 160)
    count = len(lengths) // training.BATCH
    found = list(itertools.islice(training.batches(lengths), 2 * count))
    for epoch in (found[:count], found[count:]):
        assert sorted(np.concatenate(epoch)) == list(range(len(lengths)))
        assert all(np.ptp(lengths[batch]) < 200 for batch in epoch)
    means = [lengths[batch].mean() for batch in found]
    assert means[:count] == sorted(means[:count]) and means[count:] != sorted(means[count:])


# ---------------------------------------------------------------- searches


@pytest.fixture
def files(language_model, tmp_path, monkeypatch):
    """Of a model whose words are spelled with digits."""
    decoders = pytest.importorskip("test_decoders", exc_type=ImportError)
    monkeypatch.setattr(acoustics, "TOKENS", decoders.TOKENS)
    words = decoders.WORDS[1:]
    ngrams.write_arpa(tmp_path / "arpa", [["w20", "w10"]], words)
    return searches.Files(language_model("lstm_lm"), tmp_path / "arpa", words, [1] * len(words))


@pytest.mark.parametrize("make", [searches.flashlight, searches.pyctcdecode])
def test_the_language_model_decides_what_sound_leaves_open(make, files):
    from test_decoders import best, emissions

    from fairseq_bnce import Scorer

    for model, exact in (("ours", False), ("ours exact", True)):
        search = make(model, files)
        search.weigh(1.0, 0.0)
        scorer = Scorer.from_checkpoint(files.checkpoint, exact=exact)
        assert [search.decode(emissions())] == best(scorer)
        assert min(search.counts()) > 0


@pytest.mark.parametrize(
    "make, model",
    [
        (searches.flashlight, "none"),
        (searches.flashlight, "kenlm"),
        (searches.pyctcdecode, "none"),
        pytest.param(searches.pyctcdecode, "kenlm", marks=pytest.mark.decoders),
    ],
)
def test_what_was_said_clearly_is_found(make, model, files):
    search = make(model, files)
    tokens = [token for one in acoustics.spell("w20 w11") for token in (one, acoustics.BLANK)]
    sure = np.log(np.eye(len(acoustics.TOKENS))[tokens] * 0.99 + 1e-4).astype(np.float32)
    for weights in ((0.1, 0.0), (0.2, 1.0)):
        search.weigh(*weights)
        assert search.decode(sure) == "w20 w11"


# ---------------------------------------------------------------- all of it


def run_script(novels, name, *arguments):
    """(exit status, what it printed)"""
    return forks.script(name, "--data", novels, *arguments, cwd=novels.parent)


@pytest.fixture
def novels(tmp_path):
    return write_novels(tmp_path)


@pytest.fixture
def voice(tmp_path, monkeypatch):
    return stub_voice(tmp_path, monkeypatch)


@pytest.fixture
def example(novels, voice):
    """The example's command, after speech_example.py's of the model."""
    write_flite(voice.parent / "bin", voice, rate=features.RATE, times=400)
    flags = [
        "--out",
        "run",
        "--sentences",
        6,
        "--updates",
        3,
        "--only",
        "draw",
        "binarise",
        "train",
    ]
    status, output = run_script(novels, "speech_example.py", *flags)
    assert status == 0, output
    flags = ["--speech", "run", "--out", "first", "--spoken", 40, "--updates", 2, "--tuned", 3]

    def run(*arguments):
        return run_script(novels, "first_pass_example.py", *flags, *arguments)

    run.folder = novels.parent
    return run


def test_the_example_without_a_language_model(example, voice):
    """What needs neither flashlight nor pyctcdecode, and once more."""
    steps = [name for name in first_pass_example.stages() if not name.startswith("decode-")]
    status, output = example("--only", *steps[:-1], "decode-greedy", "report")
    assert status == 0, output
    found = json.loads((example.folder / "first" / "first-pass.json").read_text("utf-8"))
    assert json.loads(output[output.index("\n{") :]) == found
    assert set(found["systems"]) == {"greedy"} and found["differences"] == {}
    assert found["sentences"] == 6 and found["acoustics"]["updates"] == 2
    said = voice.read_text("utf-8").splitlines()
    text = example.folder / "run" / "text"
    evaluated = [f"{half}.spoken" for half in ("tune", "test")]
    spoken = [line for name in evaluated for line in (text / name).read_text("utf-8").splitlines()]
    assert said[-12:] == spoken and not set(said[:-12]) & set(spoken)
    (example.folder / "first" / "done" / "decode-greedy").unlink()
    status, output = example("--only", *steps[:-1], "decode-greedy")
    assert status == 0 and output.count("done before") == len(steps) - 1
    assert len(voice.read_text("utf-8").splitlines()) == len(said)
    status, output = example("--tuned", 4, "--only", "report")
    assert status == 2 and "--tuned" in output


@pytest.mark.parametrize(
    "stage, missing",
    [
        ("speak-train", "text/train.txt"),
        ("speak-tune", "nowhere/text/tune.spoken"),
        ("decode-greedy", "nowhere/data/bin/dict.txt"),
    ],
)
def test_a_missing_file_is_named(stage, missing, tmp_path, capsys):
    flags = ["--data", tmp_path, "--speech", tmp_path / "nowhere", "--out", tmp_path / "first"]
    assert first_pass_example.main([*map(str, flags), "--only", stage]) == 2
    assert missing in capsys.readouterr().err


@pytest.mark.slow
def test_the_example_to_the_table(example):
    pytest.importorskip("flashlight.lib.text")
    pytest.importorskip("pyctcdecode")
    steps = [name for name in first_pass_example.stages() if name != "decode-pyctcdecode-kenlm"]
    status, output = example("--only", *steps)
    assert status == 0, output
    found = json.loads((example.folder / "first" / "first-pass.json").read_text("utf-8"))
    assert len(found["systems"]) == len(first_pass_example.SYSTEMS) - 1
    for name, system in found["systems"].items():
        value, low, high = system["wer"]
        assert low <= value <= high and system["real_time"] > 0
        assert (system["contexts_read"] > 0) == (" ours" in name)
        weighted = found["systems"][name.replace(" exact", "")]  # the unnormalised one as well
        assert all(system[key] == weighted[key] for key in ("lm_weight", "word_score", "tried"))
    assert found["differences"]
    for name, (value, low, high) in found["differences"].items():
        after, before = name.split(" - ")
        rates = [found["systems"][one]["wer"][0] for one in (before, after)]
        assert value == pytest.approx(rates[1] - rates[0]) and low <= value <= high
    assert len(decoding.first_pass(found)) == 2 + len(found["systems"])


def test_too_many_spoken_sentences_are_named(example):
    status, output = example("--spoken", 4000, "--only", "speak-train")
    assert status == 2 and "--spoken" in output
