"""What a scorer loads, and what it refuses: nothing in a checkpoint is run."""

import os
import shutil

import pytest
import torch
from scoring_models import FLAGS
from test_cli import train_translation
from tools import train, write_lines

from fairseq_bnce import Scorer
from fairseq_bnce.output_layer import UnsupportedModelError
from fairseq_bnce.scoring import CheckpointError, checkpoints


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


def test_where_the_dictionary_is_looked_for(corpus, language_model, tmp_path):
    """In --data alone if given; else where the model was trained; else beside the checkpoint."""
    content = torch.load(language_model("rnn_lm"), weights_only=False)
    content["cfg"]["task"]["data"] = str(tmp_path / "gone")
    moved = tmp_path / "moved.pt"
    torch.save(content, moved)
    said = refused(moved)
    assert "--data: required a folder with the dict.txt" in said
    assert "gone" in said and str(tmp_path) in said
    assert f"got none in {tmp_path / 'other'}" in refused(moved, tmp_path / "other")
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(moved, corpus).score(["w1 w2"]) == want
    shutil.copy(corpus / "dict.txt", tmp_path)
    assert Scorer.from_checkpoint(moved).score(["w1 w2"]) == want


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
