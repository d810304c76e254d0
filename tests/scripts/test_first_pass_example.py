"""scripts/first_pass_example.py: features, CTC training, searches, and the stages with a stub."""

import itertools
import json
from functools import partial
from pathlib import Path

import first_pass_example
import forks
import numpy as np
import pytest
import torch
from decoders import ngrams
from experiments.command import UsageError
from rendering import first_pass
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


def test_spoken_sentences_come_back_from_their_file(tmp_path):
    samples = [np.arange(n, dtype="<i2").tobytes() for n in (800, 2400)]
    features.save(tmp_path / "a.npz", zip(samples, ["one", "two words"]))
    found = features.load(tmp_path / "a.npz")
    assert found.words == ["one", "two words"] and found.seconds == pytest.approx(0.22)
    for frames, sound in zip(found.features(), samples):
        np.testing.assert_array_equal(frames, features.log_mels(sound))


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


def test_the_rate_rises_and_falls():
    rates = [training.rate(done / 100) for done in range(100)]
    assert max(rates) == rates[10] == 1 and min(rates) == rates[0] == 0
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_letters_that_are_wrong_are_counted():
    emissions = np.eye(len(acoustics.TOKENS))[acoustics.spell("a cat")]
    assert acoustics.letter_error_rate([emissions], ["a cut"]) == pytest.approx(100 / 5)


# ---------------------------------------------------------------- searches


@pytest.fixture
def files(language_model, tmp_path, monkeypatch):
    """Of a model whose words are spelled with digits."""
    decoders = pytest.importorskip("test_decoders", exc_type=ImportError)
    monkeypatch.setattr(acoustics, "TOKENS", decoders.TOKENS)
    words = decoders.WORDS[1:]
    ngrams.write_arpa(tmp_path / "arpa", [["w20", "w10"]], words)
    return searches.Files(language_model("lstm_lm"), tmp_path / "arpa", words, [1] * len(words))


def test_the_look_ahead_is_the_unigram_distribution(files):
    """In each language model's unit; none expects nothing."""
    pytest.importorskip("flashlight.lib.text")
    from decoders import search, systems

    for model, expected in (("none", [0, 0]), ("kenlm", [np.log10(0.9), np.log10(0.1)])):
        system = systems.make(model, files.checkpoint, files.words, files.arpa)
        trie = search.smeared_trie([[2, 1], [3, 1]], [8, 0], 4, system)
        found = [trie.search([first]).max_score for first in (2, 3)]
        assert found == pytest.approx(expected)


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


@pytest.mark.parametrize(
    "make, model, module",
    [
        (searches.flashlight, "none", "flashlight-text"),
        (searches.pyctcdecode, "none", "pyctcdecode"),
    ],
)
def test_a_library_that_is_missing_is_said(make, model, module, monkeypatch):
    monkeypatch.setattr(searches.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"required {module}.*pip install {module}"):
        make(model, searches.Files(Path(), Path(), [], []))


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
    assert status == 2 and "error: --tuned: required 3, " in output


@pytest.mark.parametrize(
    "stage, missing",
    [
        ("speak-train", "text/train.txt"),
        ("speak-tune", "nowhere/text/tune.spoken"),
        ("emit-tune", "acoustics/model.pt"),
        ("decode-greedy", "nowhere/data/bin/dict.txt"),
        ("report", "sound/train.npz"),
    ],
)
def test_a_file_that_is_missing_is_said(stage, missing, tmp_path, capsys):
    """Of a folder that has none, or of a stage before this one."""
    flags = ["--data", tmp_path, "--speech", tmp_path / "nowhere", "--out", tmp_path / "first"]
    assert first_pass_example.main([*map(str, flags), "--only", stage]) == 2
    said = capsys.readouterr().err
    assert f"error: {stage}: required " in said and f"{missing}, got no such file" in said


def test_results_of_another_speech_are_refused(tmp_path, capsys):
    """Wherever the folders are by then."""
    flags = ["--data", tmp_path, "--out", tmp_path / "first", "--only", "report"]
    for name, updates in (("short", 10), ("long", 20)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chosen.json").write_text(json.dumps({"updates": updates}))
    (tmp_path / "first").mkdir()
    chosen = json.dumps({"spoken": 8_000, "speech": {"updates": 10}})
    (tmp_path / "first" / "chosen.json").write_text(chosen)
    said = {}
    for name in ("short", "long"):
        assert first_pass_example.main([*map(str, flags), "--speech", str(tmp_path / name)]) == 2
        said[name] = capsys.readouterr().err
    assert "error: report: required " in said["short"]  # nothing was spoken
    assert "error: --speech: required {'updates': 10}, which the results in " in said["long"]


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
    assert len(first_pass.systems(found)) == 2 + len(found["systems"])


def test_too_few_sentences_are_said(example):
    status, output = example("--spoken", 4000, "--only", "speak-train")
    assert status == 2 and "error: --spoken: required 4000 sentences to speak, got" in output


def test_the_tables():
    system = {"real_time": 0.0123, "lm_weight": 1.0, "word_score": -0.5, "contexts_read": 0}
    systems = {
        "greedy": {**system, "wer": [30.0, 28.0, 32.0]},
        "flashlight ours": {**system, "wer": [10.0, 9.0, 11.0], "contexts_read": 4000},
        "flashlight ours exact": {**system, "wer": [10.5, 9.5, 11.5], "contexts_read": 5000},
    }
    differences = {"flashlight ours - flashlight ours exact": [-0.5, -1.0, 0.25]}
    found = {"sentences": 10, "systems": systems, "differences": differences}
    _, _, greedy, ours, exact = first_pass.systems(found)
    assert greedy == "| greedy | – | 30.00 [28.00, 32.00] | – | – | – | – | – |"
    assert ours.endswith(
        "| ours, unnormalised | 10.00 [9.00, 11.00] | – | 0.0123 | 400 | 1.0 | −0.5 |"
    )
    assert "| −0.50 [−1.00, +0.25] |" in exact
