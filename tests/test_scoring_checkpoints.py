"""What a scorer loads, and what it refuses: nothing in a checkpoint is run."""

import math
import pickle
import shutil

import numpy as np
import pytest
import torch
from checkpoint_edits import CONTAINERS, edited, set_options, with_state
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.logging import meters
from scoring_models import FLAGS
from tools import slow, train, write_lines

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.checkpoints import reading
from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
from fairseq_bnce.scoring import CheckpointError


@pytest.mark.parametrize("name", ["transformer_lm", "rnn_lm"])
def test_options_of_another_version_are_left_out(name, corpus, language_model, tmp_path):
    """As fairseq-eval-lm leaves them out."""

    def edit(content):
        set_options(content, moe_freq=0)
        content["cfg"]["task"]["of_another_version"] = 1

    path = edited(language_model(name), tmp_path / "e.pt", edit)
    want = Scorer.from_checkpoint(language_model(name), corpus).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want


OLD_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)


@pytest.mark.parametrize("module", ["fairseq.meters", "fairseq.logging.meters"])
def test_meters_of_old_checkpoints_load(module, any_torch, corpus, language_model, tmp_path):
    """fairseq up to 0.9 saved the objects, and their module had another name."""
    old = {"train_meters": {kind.__name__: kind() for kind in OLD_METERS}}

    def edit(content):
        content["extra_state"].update(old)

    with pytest.MonkeyPatch.context() as patch:
        for kind in OLD_METERS:
            patch.setattr(kind, "__module__", module)
        path = edited(language_model("rnn_lm"), tmp_path / "old.pt", edit)
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert list(map(type, state["extra_state"]["train_meters"].values())) == list(OLD_METERS)


class Reduced:
    """Pickled as a call with arguments, and a state."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def test_arrays_of_numbers_load(any_torch, tmp_path):
    """As --eval-bleu has them in the metrics of a translation task."""
    want = [np.arange(4.0).reshape(2, 2), np.array([True, False]), np.int64(5), np.float32(0.5)]
    torch.save(want, tmp_path / "arrays.pt")
    found = checkpoints.read(str(tmp_path / "arrays.pt"))
    assert all(np.array_equal(a, b) and type(a) is type(b) for a, b in zip(found, want))
    assert [values.dtype for values in found] == [values.dtype for values in want]


def test_a_dictionary_in_a_tasks_state_loads(any_torch, tmp_path):
    """As those of speech have it."""
    words = Dictionary()
    words.add_symbol("w1")
    torch.save({"target_dictionary": words}, tmp_path / "state.pt")
    found = checkpoints.read(str(tmp_path / "state.pt"))["target_dictionary"]
    assert found.symbols == words.symbols and found.index("w1") == words.index("w1")


@pytest.mark.parametrize("code", ["O", [("objects", "O")], "V8", ">i8"], ids=str)
def test_arrays_of_objects_do_not(code, any_torch, tmp_path):
    """numpy would take numbers of the file for the addresses of objects."""
    torch.save(Reduced(np.dtype, (code, False, True)), tmp_path / "arrays.pt")
    with pytest.raises(CheckpointError):
        checkpoints.read(str(tmp_path / "arrays.pt"))


def test_a_type_of_numbers_does_not_become_one_of_objects(any_torch, tmp_path):
    state = (3, "<", None, ("o",), {"o": (np.dtype("f8"), 0)}, 8, 8, 63)
    torch.save(Reduced(np.dtype, ("i8", False, True), state), tmp_path / "type.pt")
    found = checkpoints.read(str(tmp_path / "type.pt"))
    assert found == np.dtype("i8") and found.fields is None
    torch.save(Reduced(np.ndarray, ((1,), "O", b"12345678")), tmp_path / "array.pt")
    with pytest.raises(CheckpointError):
        checkpoints.read(str(tmp_path / "array.pt"))


def refused(path, data=None, **options):
    with pytest.raises(CheckpointError) as caught:
        Scorer.from_checkpoint(path, data, **options)
    return str(caught.value)


NO_MODELS = {
    "nothing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a text": lambda path: path.write_text("a text", encoding="utf-8"),
    "another text": lambda path: path.write_text("w1 w2 w3\n" * 99, encoding="utf-8"),
    "no bytes": lambda path: path.touch(),
    "half a pickle": lambda path: path.write_bytes(pickle.dumps(["w1"] * 99, 2)[:50]),
    "no model": lambda path: torch.save({"weights": torch.zeros(2)}, path),
    "no configuration": lambda path: torch.save({"model": {}, "cfg": None}, path),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_files_that_hold_no_model(kind, any_torch, tmp_path):
    NO_MODELS[kind](tmp_path / "some.pt")
    said = refused(tmp_path / "some.pt")
    assert str(tmp_path / "some.pt") in said
    assert "weights_only" not in said  # torch's advice to switch its check off
    assert kind not in ("nothing", "a folder") or "plain data" not in said


def without_traces(content):
    content["cfg"]["task"]["data"] = "gone"
    content["task_state"]["data_folder"] = "/away"


def test_where_the_dictionary_is_looked_for(corpus, language_model, tmp_path):
    """In --data alone if given; else beside the checkpoint; else where the model was trained."""
    moved = edited(language_model("rnn_lm"), tmp_path / "moved.pt", without_traces)
    said = refused(moved)
    assert all(f"{folder}: " in said for folder in (tmp_path, "/away"))
    assert str(tmp_path / "other") in refused(moved, tmp_path / "other")
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(moved, corpus).score(["w1 w2"]) == want
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "best.pt").symlink_to(moved)
    shutil.copy(corpus / "dict.txt", tmp_path)
    assert Scorer.from_checkpoint(moved).score(["w1 w2"]) == want
    assert Scorer.from_checkpoint(tmp_path / "links" / "best.pt").score(["w1 w2"]) == want


def test_the_dictionary_beside_a_link_comes_first(corpus, language_model, tmp_path):
    """fairseq's own checkpoints have no digest by which another folder's words would be refused."""

    def of_fairseq(content):
        content["task_state"] = {}
        content["cfg"]["task"]["data"] = str(tmp_path)

    (tmp_path / "models").mkdir()
    moved = edited(language_model("rnn_lm"), tmp_path / "models" / "moved.pt", of_fairseq)
    (tmp_path / "best.pt").symlink_to(moved)
    words = (corpus / "dict.txt").read_text(encoding="utf-8").splitlines()
    write_lines(tmp_path / "dict.txt", words)
    write_lines(tmp_path / "models" / "dict.txt", words[::-1])
    found = Scorer.from_checkpoint(tmp_path / "best.pt", exact=True).dictionary
    assert found == Dictionary.load(str(corpus / "dict.txt"))


def test_a_dictionary_is_found_from_any_folder(corpus, language_model, tmp_path, monkeypatch):
    """Trained with a relative path: by what lies beside it, else by the folder's full name."""
    monkeypatch.chdir(corpus.parent)
    train(corpus.relative_to(corpus.parent), tmp_path / "run", *FLAGS["rnn_lm"])
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])
    assert (tmp_path / "run" / "dict.txt").read_bytes() == (corpus / "dict.txt").read_bytes()
    assert not list((tmp_path / "run").glob(".*"))
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
    for others in (words[::-1], ["w1 3", "w2 2"], ["no counts here"]):
        write_lines(tmp_path / "dict.txt", others)
        said = refused(moved, tmp_path)
        assert str(tmp_path) in said
        assert others[0] != "w1 3" or f"6 types and not {len(words) + 4}" in said
    write_lines(tmp_path / "dict.txt", [f"{line.split()[0]} 1" for line in words])
    assert Scorer.from_checkpoint(moved, tmp_path).score(["w1 w2"]) == want  # counts don't matter


def test_a_dictionary_that_cannot_be_written_stops_no_training(corpus, tmp_path, caplog):
    (tmp_path / "run").touch()  # no folder
    kept = KeptDictionary(str(corpus), Dictionary.load(str(corpus / "dict.txt")))
    kept.keep(str(tmp_path / "run"))
    assert "dict.txt can't be kept beside the checkpoints" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_another_dictionary_among_the_checkpoints_stays(corpus, tmp_path):
    """Both models are found with their words."""
    content = b"mine 3\nprecious 2\n"
    (tmp_path / "dict.txt").write_bytes(content)
    log = train(corpus, tmp_path, *FLAGS["rnn_lm"], "--save-interval-updates", "10")
    assert (tmp_path / "dict.txt").read_bytes() == content
    assert log.count("dict.txt belongs to another model") == 1
    checkpoint = tmp_path / "checkpoint_last.pt"
    want = Scorer.from_checkpoint(checkpoint, corpus).score(["w1 w2"])
    edited(checkpoint, checkpoint, without_traces)
    assert Scorer.from_checkpoint(checkpoint).score(["w1 w2"]) == want


def test_a_model_of_fairseqs_truncated_bptt(corpus, language_model, tmp_path):
    """examples/truncated_bptt, whose task has other options and keeps no facts about dict.txt."""

    def edit(content):
        options = {"tokens_per_sample": 16, "max_target_positions": 16, "batch_size": 8}
        options.update(data=str(corpus), data_parallel_rank=0, data_parallel_size=1)
        content["cfg"]["task"] = {"_name": "truncated_bptt_lm", **options}
        content["task_state"] = {"log_z": content["task_state"]["log_z"]}

    path = edited(language_model("rnn_lm"), tmp_path / "a.pt", edit)
    want = Scorer.from_checkpoint(language_model("rnn_lm"), shift="none").score(["w1 w2"])
    assert Scorer.from_checkpoint(path, shift="none").score(["w1 w2"]) == want


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_a_dictionary_in_another_encoding(encoding, corpus, language_model, tmp_path):
    """Beside a model without a digest, and for training. fairseq itself refuses other bytes."""
    data = shutil.copytree(corpus, tmp_path / "data")
    words = (data / "dict.txt").read_text("utf-8").replace("w0 ", "\u00e9 ")
    (data / "dict.txt").write_text(words, encoding=encoding)

    def edit(content):
        del content["task_state"]["dictionary_sha256"]

    path = edited(language_model("rnn_lm"), tmp_path / "a.pt", edit)
    assert str(data) in refused(path, data)
    output = train(data, tmp_path / "run", *FLAGS["rnn_lm"], check=False)
    assert "dict.txt" in output.splitlines()[-1]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ["lstm_lm", *slow("rnn_lm")])
def test_any_container_of_options(name, container, any_torch, corpus, language_model, tmp_path):
    path = edited(language_model(name), tmp_path / "e.pt", lambda content: None, container)
    want = Scorer.from_checkpoint(language_model(name)).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want


def refused_by_all(path, corpus, task):
    """The message of Scorer and of fairseq-eval-lm."""
    said = refused(path, corpus)
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert str(caught.value).partition(":")[2] == said.partition(":")[2]
    return said


def with_bias(change):
    def edit(content):
        name = "decoder.output_projection.bias"
        content["model"][name] = change(content["model"][name])

    return edit


def spoilt(value, dtype):
    return with_bias(lambda bias: bias.to(dtype).index_fill(0, torch.tensor([3, 5]), value))


_BIAS = "model.decoder.output_projection.bias"
ROWS = {"weight": torch.zeros(2, 16), "bias": torch.tensor([0, math.inf])}
# What all refuse: how it comes about, and what is named.
REFUSED = {
    "log Z": (with_state(log_z=math.nan), "task_state.log_z"),
    "mu_z": (with_state(mu_z=math.nan), "task_state.mu_z"),
    "rows": (with_state(reduced_partition=ROWS), "task_state.reduced_partition"),
    "nan": (spoilt(math.nan, torch.float32), _BIAS),
    "inf": (spoilt(math.inf, torch.float16), _BIAS),
    "-inf": (spoilt(-math.inf, torch.bfloat16), _BIAS),
    "another dictionary": (with_state(dictionary_sha256="0" * 64), "dict.txt"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_spoil_scores(kind, corpus, language_model, task, tmp_path):
    edit, named = REFUSED[kind]
    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", edit)
    assert named in refused_by_all(path, corpus, task)


def test_parameters_that_look_spoilt():
    """What fairseq never initialises may hold anything: positions, adaptive layers, convolutions.

    Of others the sum may be beyond float32.
    """
    owners = ("embed_positions", "adaptive_softmax", "embed_tokens")
    names = [*(f"{owner}._float_tensor" for owner in owners), "layers.0.conv.conv_bias"]
    parameters = {f"decoder.{name}": torch.tensor([math.nan]) for name in names}
    parameters["decoder.output_projection.bias"] = torch.full((64,), 1e38)
    reading.check_finite({"model": parameters}, "c.pt")


def named(part, name):
    return lambda content: content["cfg"][part].update(_name=name)


NO_MODEL = {
    "none": (lambda content: content["cfg"].update(model=None), ""),
    "interpolation": (lambda content: set_options(content, dropout="${nowhere.at_all}"), ""),
    "shape": (with_bias(lambda bias: bias[:-1].clone()), ""),
    "parameter": (lambda content: content["model"].pop(_BIAS[6:]), _BIAS[6:]),
    "architecture": (named("model", "elsewhere_lm"), "elsewhere_lm"),
    "user-dir": (named("model", "elsewhere_lm"), "--user-dir"),
    "task": (named("task", "translation"), "translation"),
}


@pytest.mark.parametrize("kind", NO_MODEL)
def test_a_model_that_cannot_be_built(kind, corpus, language_model, tmp_path):
    edit, named = NO_MODEL[kind]
    path = edited(language_model("rnn_lm"), tmp_path / "edited.pt", edit)
    said = refused(path, corpus)
    assert str(path) in said and named in said
