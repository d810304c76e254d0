"""fairseq-train continues where it was, or says from what it can."""

import argparse
import os
import shutil

import pytest
from architectures import SEQ2SEQ
from checkpoint_edits import edited
from fairseq import checkpoint_utils
from scoring_models import FLAGS
from tools import binarise, train, write_lines

from fairseq_bnce.scoring import CheckpointError


@pytest.fixture
def run(language_model, tmp_path):
    """A folder of three checkpoints, whose last one a kill has cut short."""
    whole = language_model("rnn_lm")
    for age, name in enumerate(["checkpoint_last.pt", "checkpoint2.pt", "checkpoint1.pt"]):
        shutil.copyfile(whole, tmp_path / name)
        os.utime(tmp_path / name, (2e9 - age, 2e9 - age))
    return tmp_path


@pytest.mark.parametrize("damage", ["empty", "begun", "cut", "zeros"])
def test_a_damaged_checkpoint_is_named_with_the_others(damage, run):
    """Zeros: a full disk has the right size, and its end was never written.

    Begun: torch looks for the end of an archive before the start of so small a file.
    """
    last = run / "checkpoint_last.pt"
    content = last.read_bytes()
    size = {"empty": 0, "begun": 20_000}.get(damage, len(content) // 2)
    last.write_bytes(content[:size].ljust(len(content) * (damage == "zeros"), b"\0"))
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_checkpoint_to_cpu(str(last))
    said = str(caught.value)
    assert str(last) in said
    assert said.endswith(f"{run / 'checkpoint2.pt'} {run / 'checkpoint1.pt'}")


def test_training_continues_as_the_error_says(corpus, run):
    os.truncate(run / "checkpoint_last.pt", 1000)
    flags = [*FLAGS["rnn_lm"], "--max-epoch", "2"]
    last = train(corpus, run, *flags, check=False).splitlines()[-1]
    assert "CheckpointError" in last
    advised = last.partition("--restore-file): ")[2].split()[0]
    assert advised == str(run / "checkpoint2.pt")
    assert "Loaded checkpoint" in train(corpus, run, *flags, "--restore-file", advised)
    checkpoint_utils.load_checkpoint_to_cpu(str(run / "checkpoint_last.pt"))


def test_a_state_that_is_handed_in_is_taken(run):
    path = str(run / "checkpoint1.pt")
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    state["model"]["decoder.output_projection.bias"].fill_(0.5)
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([path], state=state)
    assert (model.decoder.output_projection.bias == 0.5).all()


def test_models_of_other_tasks_are_loaded(pairs, tmp_path):
    """By fairseq-validate, which has no task then; nothing in these models runs either."""
    train(pairs, tmp_path, *SEQ2SEQ, "--criterion", "cross_entropy", "--optimizer", "adam")
    path = str(tmp_path / "checkpoint_last.pt")
    (model, other), _, task = checkpoint_utils.load_model_ensemble_and_task([path, path])
    assert type(task).__name__ == "TranslationTask" and hasattr(model, "encoder")
    assert model is not other and hasattr(other, "encoder")

    def edit(content):
        program = f"__import__('os').mkdir({str(tmp_path / 'made')!r})"
        content["cfg"]["model"] = argparse.Namespace(arch="fconv", encoder_layers=program)

    edited(path, path, edit)
    with pytest.raises(CheckpointError, match="literal"):
        checkpoint_utils.load_model_ensemble_and_task([path])
    assert not (tmp_path / "made").exists()


@pytest.fixture
def other_words(corpus, tmp_path):
    """The same text binarised with a dictionary of as many words, in another order."""
    head, *rest = (corpus / "dict.txt").read_text("utf-8").splitlines()
    write_lines(tmp_path / "words.txt", [*rest, head])
    return binarise(corpus.parent, tmp_path / "others", "--srcdict", tmp_path / "words.txt")


@pytest.mark.parametrize("way", ["resumed", "fine-tuned"])
def test_another_dictionary_of_the_same_size(way, language_model, other_words, tmp_path):
    """Every row would belong to another word."""
    start = language_model("rnn_lm")
    flags = [*FLAGS["rnn_lm"], "--max-epoch", "2"]
    if way == "fine-tuned":
        flags += ["--finetune-from-model", str(start)]
    else:
        (tmp_path / "run").mkdir()
        start = shutil.copy(start, tmp_path / "run" / "checkpoint_last.pt")
    last = train(other_words, tmp_path / "run", *flags, check=False).splitlines()[-1]
    assert "dict.txt" in last and str(start) in last


def test_shallow_fusion_needs_the_same_words(corpus, other_words, pairs, language_model):
    """fairseq-generate --lm-path, and from_pretrained, take the task from the file."""
    last = str(language_model("rnn_lm"))
    checkpoint_utils.load_model_ensemble_and_task([last], {"data": str(corpus)})
    with pytest.raises(CheckpointError, match="dict.txt"):
        checkpoint_utils.load_model_ensemble_and_task([last], {"data": str(other_words)})
    with pytest.raises(FileNotFoundError, match="dict.txt"):  # dict.fr.txt is in another order
        checkpoint_utils.load_model_ensemble_and_task([last], {"data": str(pairs)})
