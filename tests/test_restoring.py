"""fairseq-train goes on where it was, or says from what it can."""

import argparse
import os
import shutil

import pytest
import torch
from architectures import SEQ2SEQ
from checkpoint_edits import edited
from fairseq import checkpoint_utils
from scoring_models import FLAGS
from tools import LSTM, train, train_translation, write_lines
from tools import run as run_command

from fairseq_bnce.checkpoints import restoring
from fairseq_bnce.scoring import CheckpointError


@pytest.fixture
def run(language_model, tmp_path):
    """A folder of three checkpoints, the last of which a kill has cut short."""
    whole = language_model("rnn_lm")
    for age, name in enumerate(["checkpoint_last.pt", "checkpoint2.pt", "checkpoint1.pt"]):
        shutil.copyfile(whole, tmp_path / name)
        os.utime(tmp_path / name, (2e9 - age, 2e9 - age))
    return tmp_path


def cut(path, size):
    os.truncate(path, size)
    os.utime(path, (2e9, 2e9))


def refused(path):
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    return str(caught.value)


def test_the_newest_whole_checkpoint_is_named(run):
    last = run / "checkpoint_last.pt"
    size = last.stat().st_size
    for left in (0, 1, 100, size // 2, size - 1):
        shutil.copyfile(run / "checkpoint1.pt", last)
        cut(last, left)
        said = refused(last)
        assert said.startswith(f"{last}: required a whole checkpoint, got one that is damaged")
        assert f"go on from it with --restore-file {run / 'checkpoint2.pt'} " in said
    cut(run / "checkpoint2.pt", size - 1)
    assert f"--restore-file {run / 'checkpoint1.pt'} " in refused(last)
    cut(run / "checkpoint1.pt", 0)
    assert f"no other checkpoint in {run} is whole" in refused(last)


def test_a_state_that_is_handed_in_is_taken(run):
    path = str(run / "checkpoint1.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    state["model"]["decoder.output_projection.bias"].fill_(0.5)
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([path], state=state)
    assert (model.decoder.output_projection.bias == 0.5).all()


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
@pytest.mark.parametrize("checks", [True, False], ids=["torch checks", "torch checks nothing"])
def test_models_of_other_tasks_are_loaded(checks, pairs, tmp_path, monkeypatch):
    """By fairseq-validate, which has no task then; nothing of theirs is run either."""
    if not checks:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    flags = [*SEQ2SEQ, "--criterion", "cross_entropy", "--optimizer", "adam"]
    train_translation(pairs, tmp_path, *flags)
    path = str(tmp_path / "checkpoint_last.pt")
    (model, other), _, task = checkpoint_utils.load_model_ensemble_and_task([path, path])
    assert type(task).__name__ == "TranslationTask" and hasattr(model, "encoder")
    assert model is not other and hasattr(other, "encoder")

    def edit(content):
        program = f"__import__('os').mkdir({str(tmp_path / 'made')!r})"
        content["cfg"]["model"] = argparse.Namespace(arch="fconv", encoder_layers=program)

    edited(path, path, edit)
    with pytest.raises(CheckpointError, match="encoder_layers: required a literal"):
        checkpoint_utils.load_model_ensemble_and_task([path])
    assert not (tmp_path / "made").exists()


@pytest.fixture
def other_words(corpus, tmp_path):
    """The same text binarised with a dictionary of as many words, in another order."""
    head, *rest = (corpus / "dict.txt").read_text("utf-8").splitlines()
    write_lines(tmp_path / "words.txt", [*rest, head])
    data, source = tmp_path / "others", ["--srcdict", str(tmp_path / "words.txt")]
    source += ["--only-source", "--trainpref", str(corpus.parent / "train.txt")]
    source += ["--validpref", str(corpus.parent / "valid.txt"), "--destdir", str(data)]
    run_command("fairseq_cli.preprocess", *source)
    return data


@pytest.mark.parametrize("way", ["resumed", "fine-tuned"])
def test_another_dictionary_of_the_same_size(way, corpus, other_words, tmp_path):
    """Every row would be that of another word."""
    flags = [*LSTM, "--criterion", "bnce", "--max-epoch"]
    train(corpus, tmp_path / "run", *flags, "1")
    last = tmp_path / "run" / "checkpoint_last.pt"
    going_on = [tmp_path / "run", *flags, "2"]
    if way == "fine-tuned":
        going_on = [tmp_path / "next", *flags, "1", "--finetune-from-model", str(last)]
    output = train(other_words, *going_on, check=False)
    assert f"required the dict.txt that {last} was trained with" in output
    train(corpus, *going_on)


def test_a_language_model_for_shallow_fusion_has_the_same_words(
    corpus, other_words, language_model
):
    """fairseq-generate --lm-path, and from_pretrained, take the task from the file."""
    last = str(language_model("rnn_lm"))
    checkpoint_utils.load_model_ensemble_and_task([last], {"data": str(corpus)})
    with pytest.raises(CheckpointError, match="required the dict.txt that the model was trained"):
        checkpoint_utils.load_model_ensemble_and_task([last], {"data": str(other_words)})


def test_a_checkpoint_without_a_configuration(language_model, tmp_path):
    """Which fairseq itself tells of, to fairseq-validate."""
    path = edited(language_model("rnn_lm"), tmp_path / "a.pt", lambda content: content.pop("cfg"))
    with pytest.raises(RuntimeError, match="Neither args nor cfg exist"):
        checkpoint_utils.load_model_ensemble_and_task([str(path)])


def test_zeros_as_a_full_disk_leaves_them(run):
    """The file's size is right, and its end was never written."""
    last = run / "checkpoint_last.pt"
    content = last.read_bytes()
    last.write_bytes(content[: len(content) // 2].ljust(len(content), b"\0"))
    assert f"--restore-file {run / 'checkpoint2.pt'} " in refused(last)


def test_a_wrong_byte_in_the_parameters(run):
    assert restoring.is_whole(str(run / "checkpoint2.pt"))
    content = bytearray((run / "checkpoint2.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "checkpoint2.pt").write_bytes(content)
    assert not restoring.is_whole(str(run / "checkpoint2.pt"))


def test_training_goes_on_as_the_error_says(corpus, run):
    cut(run / "checkpoint_last.pt", 1000)
    flags = [*FLAGS["rnn_lm"], "--max-epoch", "2"]
    last = train(corpus, run, *flags, check=False).splitlines()[-1]
    assert "CheckpointError" in last
    advised = last.partition("--restore-file ")[2].split()[0]
    assert advised == str(run / "checkpoint2.pt")
    assert "Loaded checkpoint" in train(corpus, run, *flags, "--restore-file", advised)
    assert restoring.is_whole(str(run / "checkpoint_last.pt"))


def test_other_errors_are_what_they_were(run, tmp_path):
    """A whole file that fairseq has another reason to refuse."""
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(KeyError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "other.pt"))
    with pytest.raises(FileNotFoundError):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "none.pt"))
