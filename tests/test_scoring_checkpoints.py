"""What a scorer loads, and what it refuses: nothing in a checkpoint is run."""

import os
import shutil

import pytest
import torch
from fairseq.data import Dictionary
from scoring_models import FLAGS
from test_cli import train_translation
from tools import train, write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.output_layer import UnsupportedModelError
from fairseq_bnce.scoring import CheckpointError, checkpoints
from fairseq_bnce.scoring.dictionaries import KeptDictionary


class Malicious:
    """Unpickling it makes a file."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


@pytest.fixture(params=["as it is", "by our list"])
def any_torch(request, monkeypatch):
    """Both ways of reading, whichever torch is here."""
    if request.param == "by our list":
        monkeypatch.setattr(checkpoints, "_CAN_BE_TOLD", False)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_a_malicious_pickle_is_not_run(is_zip, any_torch, tmp_path):
    checkpoint = tmp_path / "bad.pt"
    content = {"model": {}, "cfg": {}, "extra": Malicious(tmp_path / "made")}
    torch.save(content, checkpoint, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(
        CheckpointError, match="can't be loaded safely; nothing in it was run.*mkdir"
    ):
        Scorer.from_checkpoint(checkpoint)
    assert not (tmp_path / "made").exists()
    torch.load(checkpoint, weights_only=False)  # which is what it does where nobody checks
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["lstm_lm", "rnn_lm"])
def test_checkpoints_of_this_plugin_load(name, any_torch, language_model):
    """Those of lstm_lm hold a Namespace, those of rnn_lm a dictionary of options."""
    assert checkpoints.load(str(language_model(name))).state["log_z"] == 0


def test_stateful_training_leaves_no_trace(corpus, tmp_path):
    """The task would have every batch start from the state that the one before ended in."""
    flags = ["--stateful", "--sample-break-mode", "none", "--batch-size", "2"]
    train(corpus, tmp_path, *FLAGS["rnn_lm"], *flags)
    scorer = Scorer.from_checkpoint(tmp_path / "checkpoint_last.pt")
    first = scorer.score(["w1 w2", "w3"])
    assert (scorer.score(["w1 w2", "w3"]) == first).all()


def refused(path, data=None, **options):
    with pytest.raises(CheckpointError) as caught:
        Scorer.from_checkpoint(path, data, **options)
    return str(caught.value)


def test_files_that_hold_no_model(tmp_path):
    assert "got no such file" in refused(tmp_path / "none.pt")
    (tmp_path / "text.pt").write_text("a text", encoding="utf-8")
    assert "required a checkpoint" in refused(tmp_path / "text.pt")
    (tmp_path / "empty.pt").write_bytes(b"")
    assert "required a checkpoint" in refused(tmp_path / "empty.pt")
    torch.save({"weights": torch.zeros(2)}, tmp_path / "other.pt")
    assert "(with 'model' and 'cfg' or 'args'), got one with weights" in refused(
        tmp_path / "other.pt"
    )
    torch.save([1], tmp_path / "list.pt")
    assert "got a list" in refused(tmp_path / "list.pt")
    torch.save({"model": {}, "cfg": None}, tmp_path / "bare.pt")
    assert "got one with model, cfg" in refused(tmp_path / "bare.pt")


def test_a_damaged_checkpoint(language_model, tmp_path):
    whole = language_model("rnn_lm").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    assert "required a checkpoint" in refused(tmp_path / "half.pt")


def test_a_translation_model(pairs, tmp_path):
    flags = ["--task", "translation", "--source-lang", "fr", "--target-lang", "en"]
    flags += ["--arch", "lstm", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"]
    flags += ["--criterion", "cross_entropy", "--optimizer", "sgd", "--lr", "0.1"]
    train_translation(pairs, tmp_path, *flags, "--max-update", "1")
    said = refused(tmp_path / "checkpoint_last.pt")
    assert "required a language model (--task language_modeling), got a model of task" in said
    assert "'translation'" in said


def test_an_adaptive_softmax(corpus, tmp_path):
    flags = ["--arch", "transformer_lm", "--decoder-embed-dim", "16", "--decoder-layers", "1"]
    flags += ["--decoder-attention-heads", "2", "--adaptive-softmax-cutoff", "30"]
    flags += ["--ddp-backend", "legacy_ddp", "--criterion", "adaptive_loss"]
    train(corpus, tmp_path, *flags, "--max-update", "1")
    with pytest.raises(UnsupportedModelError, match="got an adaptive softmax"):
        Scorer.from_checkpoint(tmp_path / "checkpoint_last.pt", exact=True)


def test_an_architecture_that_is_not_known_here(language_model, tmp_path):
    content = torch.load(language_model("rnn_lm"), weights_only=False)
    content["cfg"]["model"]["_name"] = "elsewhere_lm"
    torch.save(content, tmp_path / "elsewhere.pt")
    said = refused(tmp_path / "elsewhere.pt", corpus_of(content))
    assert "required a model of an architecture that is known here" in said
    content["cfg"]["model"]["_name"] = "rnn_lm"
    del content["model"]["decoder.output_projection.bias"]
    torch.save(content, tmp_path / "part.pt")
    assert "output_projection.bias" in refused(tmp_path / "part.pt", corpus_of(content))


def corpus_of(content):
    return content["cfg"]["task"]["data"]


def edited(checkpoint, path, edit):
    """A checkpoint written with something changed, and loadable by hand."""
    content = torch.load(checkpoint, weights_only=False)
    edit(content)
    torch.save(content, path)
    return path


def test_where_the_dictionary_is_looked_for(corpus, language_model, tmp_path):
    """In --data alone if given; else beside the checkpoint; else where the model was trained."""

    def without_traces(content):
        content["cfg"]["task"]["data"] = str(tmp_path / "gone")
        content["task_state"]["data_folder"] = str(tmp_path / "away")

    moved = edited(language_model("rnn_lm"), tmp_path / "moved.pt", without_traces)
    said = refused(moved)
    assert "--data: required a folder with the dict.txt" in said
    assert f"{tmp_path} or {tmp_path / 'away'} or {tmp_path / 'gone'}" in said
    assert f"got none in {tmp_path / 'other'}" in refused(moved, tmp_path / "other")
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(moved, corpus).score(["w1 w2"]) == want
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "best.pt").symlink_to(moved)
    shutil.copy(corpus / "dict.txt", tmp_path)
    assert Scorer.from_checkpoint(moved).score(["w1 w2"]) == want
    assert Scorer.from_checkpoint(tmp_path / "links" / "best.pt").score(["w1 w2"]) == want


def test_a_checkpoint_is_found_with_its_dictionary_from_any_folder(
    corpus, language_model, tmp_path, monkeypatch
):
    """Trained with a relative path: by what lies beside it, else by the folder's full name."""
    monkeypatch.chdir(corpus.parent)
    train(corpus.relative_to(corpus.parent), tmp_path / "run", *FLAGS["rnn_lm"])
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert (tmp_path / "run" / "dict.txt").read_bytes() == (corpus / "dict.txt").read_bytes()
    assert not list((tmp_path / "run").glob("*.tmp"))
    monkeypatch.chdir(tmp_path)
    (corpus / "dict.txt").rename(corpus / "hidden")
    try:
        assert Scorer.from_checkpoint(checkpoint).score(["w1 w2"]) == want
    finally:
        (corpus / "hidden").rename(corpus / "dict.txt")
    (tmp_path / "run" / "dict.txt").unlink()
    assert Scorer.from_checkpoint(checkpoint).score(["w1 w2"]) == want


def test_of_several_dictionaries_the_one_that_fits(corpus, language_model, tmp_path):
    """As where two trainings share a folder of checkpoints: same size, other words."""
    moved = tmp_path / "moved.pt"
    shutil.copy(language_model("rnn_lm"), moved)
    words = (corpus / "dict.txt").read_text(encoding="utf-8").splitlines()
    write_lines(tmp_path / "dict.txt", words[::-1])
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(moved).score(["w1 w2"]) == want
    assert "got one of other words" in refused(moved, tmp_path)
    write_lines(tmp_path / "dict.txt", [f"{line.split()[0]} 1" for line in words])
    assert Scorer.from_checkpoint(moved, tmp_path).score(["w1 w2"]) == want  # counts don't matter


def test_no_save_writes_nothing(corpus, tmp_path):
    train(corpus, tmp_path / "run", *FLAGS["rnn_lm"], "--no-save")
    assert list(tmp_path.rglob("*.*")) == []


def test_a_dictionary_that_cannot_be_written_stops_no_training(corpus, tmp_path, caplog):
    (tmp_path / "dict.txt").mkdir()
    kept = KeptDictionary(str(corpus), Dictionary.load(str(corpus / "dict.txt")))
    for _ in range(2):
        kept.keep(str(tmp_path))
    assert caplog.text.count("dict.txt can't be kept beside the checkpoints") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dict.txt"]


def test_dictionaries_that_do_not_fit(language_model, tmp_path):
    checkpoint = language_model("rnn_lm")
    types = len(Scorer.from_checkpoint(checkpoint).dictionary)
    write_lines(tmp_path / "dict.txt", ["w1 3", "w2 2"])
    said = refused(checkpoint, tmp_path)
    assert f"({types:,} types, fairseq's four counted in), got one of 6" in said
    write_lines(tmp_path / "dict.txt", ["no counts here"])
    assert "required a dict.txt of fairseq-preprocess" in refused(checkpoint, tmp_path)
    (tmp_path / "dict.txt").write_bytes(b"\xff\xfe\x00 1\n")
    assert "required a dict.txt of fairseq-preprocess" in refused(checkpoint, tmp_path)
