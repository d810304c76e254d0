"""What a scorer loads, and what it refuses: nothing in a checkpoint is run."""

import gc
import math
import pickle
import shutil
import sys
import warnings
import weakref
import zipfile
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoint_edits import (
    CONTAINERS,
    Malicious,
    compressed,
    edited,
    set_options,
    with_torchscript,
)
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.logging import meters
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.speech_to_text import xm_transformer
from scoring_models import FLAGS
from tools import (
    LSTM,
    PLUGIN,
    build,
    call_command,
    evaluate,
    modern,
    perplexity,
    train,
    train_translation,
    write_lines,
)

from fairseq_bnce import Scorer, checkpoints
from fairseq_bnce.checkpoints import contents
from fairseq_bnce.checkpoints.dictionaries import KeptDictionary
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.scoring import CheckpointError, ScoringError


def test_fairseqs_commands_run_none_where_torch_checks_nothing(corpus, tmp_path, monkeypatch):
    """As torch 2.4 and 2.5 do, and others that are told to."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    checkpoint = tmp_path / "bad.pt"
    torch.save({"model": {}, "cfg": {}, "extra": Malicious(tmp_path / "made")}, checkpoint)
    _, task, _ = build(corpus, *LSTM)
    for given in (task, None):  # of fairseq-eval-lm, of fairseq-validate
        with pytest.raises(CheckpointError, match="nothing in it was run.*mkdir"):
            checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], task=given)
    assert not (tmp_path / "made").exists()


@pytest.mark.modern
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/maps")
def test_a_file_is_mapped_as_long_as_it_is_read(language_model, tmp_path):
    """The optimiser's state of a large vocabulary is twice the model's.

    fairseq, when it brings parameters up to date, leaves a cycle of references that holds them.
    """
    path = shutil.copy(language_model("rnn_lm"), tmp_path / "a.pt")
    content = checkpoints.read(path)
    assert str(path) in Path("/proc/self/maps").read_text("utf-8")
    del content
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text("utf-8")
    scorer = Scorer.from_checkpoint(path, language_model("rnn_lm").parent)
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text("utf-8")
    assert scorer.score(["w1"]) < 0


@pytest.mark.parametrize("name", ["transformer_lm", "rnn_lm", "lstm_lm"])
def test_options_of_another_version_are_left_out(name, corpus, language_model, tmp_path):
    """As fairseq-eval-lm leaves them out."""

    def edit(content):
        set_options(content, moe_freq=0)
        content["cfg"]["task"]["of_another_version"] = 1

    path = edited(language_model(name), tmp_path / "e.pt", edit)
    want = Scorer.from_checkpoint(language_model(name), corpus).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want


@pytest.fixture(params=["as it is", "by our list"])
def any_torch(request, monkeypatch):
    """Both ways of reading, whichever torch is here."""
    if request.param == "by our list":
        monkeypatch.setattr(checkpoints.reading, "_CAN_BE_TOLD", False)


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


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_nor_is_it_by_fairseqs_commands(is_zip, task, tmp_path):
    checkpoint = tmp_path / "bad.pt"
    content = {"model": {}, "cfg": {}, "extra": Malicious(tmp_path / "made")}
    torch.save(content, checkpoint, _use_new_zipfile_serialization=is_zip)
    for given in (task, None):  # None: fairseq-validate
        with pytest.raises(CheckpointError, match="can't be loaded safely; nothing in it was run"):
            checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], task=given)
    assert not (tmp_path / "made").exists()


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
@pytest.mark.parametrize("checks", [True, False], ids=["torch checks", "torch checks nothing"])
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_nor_where_a_training_goes_on(is_zip, checks, any_torch, task, tmp_path, monkeypatch):
    """Or where a model of another task opens a further checkpoint."""
    if not checks:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    checkpoint = str(tmp_path / "bad.pt")
    content = {"model": {}, "cfg": {}, "extra": Malicious(tmp_path / "made")}
    torch.save(content, checkpoint, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(CheckpointError, match="bad.pt: .*safely; nothing in it was run.*mkdir"):
        checkpoint_utils.load_checkpoint_to_cpu(checkpoint)
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        checkpoint_utils.load_ema_from_checkpoint(checkpoint)
    options = SimpleNamespace(load_pretrained_decoder_from=checkpoint)
    monkeypatch.setattr(xm_transformer, "base_architecture", lambda args: None)
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        xm_transformer.XMTransformerModel.build_model(options, None)
    assert not (tmp_path / "made").exists()


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
@pytest.mark.filterwarnings("ignore:'torch.load' received a zip file that looks like a TorchScript")
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated")
@pytest.mark.parametrize("checks", [True, False], ids=["torch checks", "torch checks nothing"])
def test_torchscript_is_not_run(checks, any_torch, language_model, task, tmp_path, monkeypatch):
    """Behind a data.pkl that is plain: torch.load leaves the whole file to torch.jit.load."""
    if not checks:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    made = tmp_path / "made"
    path = with_torchscript(language_model("rnn_lm"), tmp_path / "bad.pt", made)
    said = "nothing in it was run. Unsupported global: code of TorchScript"
    assert said in refused(path)
    for given in (task, None):  # of fairseq-eval-lm, of fairseq-validate
        with pytest.raises(CheckpointError, match=said):
            checkpoint_utils.load_model_ensemble_and_task([str(path)], task=given)
    with pytest.raises(CheckpointError, match=said):  # of fairseq-train
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert checkpoints.reading.read_if_whole(str(path)) == {}
    assert not made.exists()
    with pytest.raises(RuntimeError):
        torch.load(path, weights_only=False)
    assert made.exists()


@pytest.mark.parametrize("name", ["lstm_lm", "rnn_lm"])
def test_checkpoints_of_this_plugin_load(name, any_torch, language_model):
    """Those of lstm_lm hold a Namespace, those of rnn_lm a dictionary of options."""
    assert checkpoints.load(str(language_model(name))).state["log_z"] == 0


OLD_METERS = (meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter)


@pytest.mark.parametrize("module", ["fairseq.meters", "fairseq.logging.meters"])
def test_meters_of_old_checkpoints_load(module, any_torch, corpus, language_model, tmp_path):
    """fairseq up to 0.9 saved the objects, and their module had another name."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in OLD_METERS:
            patch.setattr(kind, "__module__", module)
        path = edited(language_model("rnn_lm"), tmp_path / "old.pt", with_meters)
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert list(map(type, state["extra_state"]["train_meters"].values())) == list(OLD_METERS)
    for kind in OLD_METERS:  # plain containers: pickle fills their fields
        assert kind.__reduce_ex__ is object.__reduce_ex__ and not hasattr(kind, "__setstate__")


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
    found = checkpoints.reading.load(str(tmp_path / "arrays.pt"))
    assert all(np.array_equal(a, b) and type(a) is type(b) for a, b in zip(found, want))
    assert [values.dtype for values in found] == [values.dtype for values in want]


@pytest.mark.modern
def test_numpys_own_names_are_left_to_others(tmp_path):
    """Who else has put them on torch's list finds them there, and we read by them."""
    torch.save(np.arange(4.0), tmp_path / "array.pt")
    before = set(map(str, torch.serialization.get_safe_globals()))
    checkpoints.reading.load(str(tmp_path / "array.pt"))
    assert set(map(str, torch.serialization.get_safe_globals())) == before
    assert not any("_reconstruct" in one for one in before)
    own = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype("f8"))]
    with torch.serialization.safe_globals(own):
        for load in (torch.load, checkpoints.reading.load):
            assert np.array_equal(load(str(tmp_path / "array.pt")), np.arange(4.0))


def test_a_dictionary_in_a_tasks_state_loads(any_torch, tmp_path):
    """As those of speech have it."""
    words = Dictionary()
    words.add_symbol("w1")
    torch.save({"target_dictionary": words}, tmp_path / "state.pt")
    found = checkpoints.reading.load(str(tmp_path / "state.pt"))["target_dictionary"]
    assert found.symbols == words.symbols and found.index("w1") == words.index("w1")


@pytest.mark.parametrize("code", ["O", [("objects", "O")], "V8", ">i8"], ids=str)
def test_of_objects_they_do_not(code, any_torch, tmp_path):
    """numpy itself would take numbers for the addresses of objects."""
    torch.save(Reduced(np.dtype, (code, False, True)), tmp_path / "arrays.pt")
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global: numpy.dtype of"):
        checkpoints.reading.load(str(tmp_path / "arrays.pt"))


def test_nor_does_a_type_become_one_of_objects(any_torch, tmp_path):
    state = (3, "<", None, ("o",), {"o": (np.dtype("f8"), 0)}, 8, 8, 63)
    torch.save(Reduced(np.dtype, ("i8", False, True), state), tmp_path / "type.pt")
    found = checkpoints.reading.load(str(tmp_path / "type.pt"))
    assert found == np.dtype("i8") and found.fields is None
    torch.save(Reduced(np.ndarray, ((1,), "O", b"12345678")), tmp_path / "array.pt")
    with pytest.raises(TypeError):
        checkpoints.reading.load(str(tmp_path / "array.pt"))


def with_meters(content):
    content["extra_state"]["train_meters"] = {kind.__name__: kind() for kind in OLD_METERS}


def refused(path, data=None, **options):
    with pytest.raises(CheckpointError) as caught:
        Scorer.from_checkpoint(path, data, **options)
    return str(caught.value)


def test_files_that_hold_no_model(tmp_path):
    assert "got no such file" in refused(tmp_path / "none.pt")
    assert "got a folder" in refused(tmp_path)
    (tmp_path / "text.pt").write_text("a text", encoding="utf-8")
    assert "required a checkpoint, got a text" in refused(tmp_path / "text.pt")
    with pytest.MonkeyPatch.context() as patch:  # root may read all files

        def denied(path):
            raise PermissionError(13, "Permission denied")

        patch.setattr(checkpoints.reading, "_is_text", denied)
        assert "got a damaged or other file" in refused(tmp_path / "text.pt")
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


def test_one_wrong_bit(language_model, any_torch, tmp_path):
    """torch itself does not look at the checksums that it writes."""
    content = bytearray(language_model("rnn_lm").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "wrong.pt").write_bytes(content)
    assert "got a damaged or other file: wrong checksum of" in refused(tmp_path / "wrong.pt")


def refused_as_damaged(path, corpus, task, said):
    assert f"got a damaged or other file: {said}" in refused(path, corpus)
    with pytest.raises(
        CheckpointError, match="required a whole checkpoint, got one that is"
    ) as eval_lm:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert said in str(eval_lm.value)


def test_a_compressed_archive(any_torch, corpus, language_model, task, tmp_path):
    """Which torch takes, whatever becomes of it in memory."""
    path = compressed(language_model("rnn_lm"), tmp_path / "small.pt")
    assert torch.load(path, weights_only=False)["model"]
    with zipfile.ZipFile(path) as archive:
        first = archive.namelist()[0]
    refused_as_damaged(path, corpus, task, f"{first} is compressed")
    with open(path, "ab") as file:  # so that Python does not find the end
        file.write(bytes(66_000))
    assert torch.load(path, weights_only=False)["model"]
    refused_as_damaged(path, corpus, task, "File is not a zip file")


def test_an_archive_of_more_than_the_file(any_torch, corpus, language_model, task, tmp_path):
    path = tmp_path / "large.pt"
    shutil.copy(language_model("rnn_lm"), path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", b"")
        archive.filelist *= 3
    refused_as_damaged(path, corpus, task, "entries of ")


def test_parameters_are_looked_at_in_parts(monkeypatch):
    """A sum in float64 makes a copy of what it adds up."""
    added, total = [], torch.Tensor.sum

    def noted(values, *args, **kwargs):
        added.append(values.numel())
        return total(values, *args, **kwargs)

    values = torch.zeros(3, 7).t()
    with monkeypatch.context() as patch:
        patch.setattr(contents, "_AT_ONCE", 4)
        patch.setattr(torch.Tensor, "sum", noted)
        contents.check({"model": {"w": values}}, "some.pt")
        assert sum(added) == 21 and max(added) == 4
        values[6, 2] = float("nan")
        with pytest.raises(CheckpointError, match="finite numbers, got 1 of 21 that are not"):
            contents.check({"model": {"w": values}}, "some.pt")


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(
    "more, name",
    [
        (bytearray(3), "builtins.bytearray"),
        (b"3", "_codecs.encode"),
        (torch.FloatTensor, "torch.*Tensor"),
    ],
    ids=lambda value: str(value),
)
def test_what_a_pickle_makes_much_with(
    more, name, is_zip, any_torch, corpus, language_model, task, tmp_path
):
    """As much as it says; torch's own list of what is safe has them."""
    path = tmp_path / "bytes.pt"
    content = torch.load(language_model("rnn_lm"), weights_only=False)
    content["more"] = more
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    said = refused_by_all(path, corpus, task)
    assert said.endswith(f"nothing in it was run. Unsupported global: {name}")
    content["more"] = "bytearray encode FloatTensor"
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


def test_the_optimisers_state_does_not_stay_while_the_model_is_built(language_model, monkeypatch):
    """It is of the size of two models."""
    states = []

    def reading(path):
        content = checkpoints.reading.read(path)
        states.append(weakref.ref(next(find_tensors(content["last_optimizer_state"]))))
        return content

    def building(*arguments):
        states.append(states[0]())
        return make(*arguments)

    make = checkpoints.loading._model
    monkeypatch.setattr(checkpoints.loading, "reading", SimpleNamespace(read=reading))
    monkeypatch.setattr(checkpoints.loading, "_model", building)
    checkpoints.load(str(language_model("rnn_lm")))
    assert states[1:] == [None]


def find_tensors(content):
    for value in content.values() if isinstance(content, dict) else ():
        if torch.is_tensor(value):
            yield value
        yield from find_tensors(value)


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
    assert "required a model of an architecture that is known here, got 'elsewhere_lm'" in said
    content["cfg"]["model"]["_name"] = "rnn_lm"
    del content["model"]["decoder.output_projection.bias"]
    torch.save(content, tmp_path / "part.pt")
    assert "output_projection.bias" in refused(tmp_path / "part.pt", corpus_of(content))


def test_an_architecture_of_a_user_dir(language_model, tmp_path, capfd):
    content = torch.load(language_model("rnn_lm"), weights_only=False)
    content["cfg"]["model"]["_name"] = "user_dir_lm"
    torch.save(content, tmp_path / "elsewhere.pt")
    (tmp_path / "user_dir").mkdir()
    (tmp_path / "user_dir" / "__init__.py").write_text(
        "from fairseq.models import register_model\n"
        "from fairseq_bnce.models.rnn_lm import RecurrentConfig, RecurrentModel\n"
        "@register_model('user_dir_lm', dataclass=RecurrentConfig)\n"
        "class UserDirModel(RecurrentModel): pass\n"
    )
    (tmp_path / "text").write_text("w1 w2\n")
    called = ["score", "--path", tmp_path / "elsewhere.pt", "--data", corpus_of(content)]
    for flags, status in (([], 2), (["--user-dir", tmp_path / "none"], 2)):
        assert call_command(*called, *flags, tmp_path / "text") == status
    assert "--user-dir: required a folder, got" in capfd.readouterr().err
    assert call_command(*called, "--user-dir", "", tmp_path / "text") == 2
    assert "--user-dir: required a value, got an empty one" in capfd.readouterr().err
    want = Scorer.from_checkpoint(language_model("rnn_lm")).score(["w1 w2"])[0]
    try:
        assert call_command(*called, "--user-dir", tmp_path / "user_dir", tmp_path / "text") == 0
    finally:
        for registry in (MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, ARCH_MODEL_REGISTRY):
            registry.pop("user_dir_lm", None)
    assert float(capfd.readouterr().out.split()[0]) == pytest.approx(want, abs=1e-5)


def corpus_of(content):
    return content["cfg"]["task"]["data"]


def test_where_the_dictionary_is_looked_for(corpus, language_model, tmp_path):
    """In --data alone if given; else beside the checkpoint; else where the model was trained."""

    def without_traces(content):
        content["cfg"]["task"]["data"] = str(tmp_path / "gone")
        content["task_state"]["data_folder"] = str(tmp_path / "away")

    moved = edited(language_model("rnn_lm"), tmp_path / "moved.pt", without_traces)
    said = refused(moved)
    assert "data: required a folder with the dict.txt" in said
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
    (tmp_path / "run").touch()  # no folder
    kept = KeptDictionary(str(corpus), Dictionary.load(str(corpus / "dict.txt")))
    for _ in range(2):
        kept.keep(str(tmp_path / "run"))
    assert caplog.text.count("dict.txt can't be kept beside the checkpoints") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("other", ["words", "no dictionary"])
def test_another_dictionary_among_the_checkpoints_stays(other, corpus, tmp_path):
    """An earlier training's, or one's own data: both models are found with their words."""
    content = b"mine 3\nprecious 2\n" if other == "words" else b"mine\n"
    (tmp_path / "dict.txt").write_bytes(content)
    log = train(corpus, tmp_path, *FLAGS["rnn_lm"], "--save-interval-updates", "10")
    assert (tmp_path / "dict.txt").read_bytes() == content
    assert log.count("dict.txt is another model's, and is left as it is") == 1
    checkpoint = tmp_path / "checkpoint_last.pt"
    want = Scorer.from_checkpoint(checkpoint, corpus).score(["w1 w2"])
    content = torch.load(checkpoint, weights_only=False)
    content["task_state"]["data_folder"] = "nowhere"
    content["cfg"]["task"]["data"] = "nowhere"
    torch.save(content, checkpoint)
    assert Scorer.from_checkpoint(checkpoint).score(["w1 w2"]) == want


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


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", ["lstm_lm", "rnn_lm"])
def test_any_container_of_the_configuration(
    name, container, any_torch, corpus, language_model, tmp_path
):
    path = edited(language_model(name), tmp_path / "e.pt", lambda content: None, container)
    want = Scorer.from_checkpoint(language_model(name)).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want


def refused_by_all(path, corpus, task):
    """What Scorer and fairseq-eval-lm say of a checkpoint: the same."""
    said = refused(path, corpus)
    with pytest.raises(CheckpointError) as caught:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    assert str(caught.value) == said
    return said


def with_state(**state):
    return lambda content: content["task_state"].update(state)


NO_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "None": None, "'0.5'": "0.5"}
NO_NUMBERS.update({"True": True, "a list": [0.5], "a Tensor": torch.tensor(0.5)})
NO_NUMBERS[f"1{'0' * 56}..."] = 10**400


@pytest.mark.parametrize("got", NO_NUMBERS)
@pytest.mark.parametrize("name", ["log_z", "mu_z", "sigma_z"])
def test_what_is_subtracted_from_scores_is_a_number(
    name, got, corpus, language_model, task, tmp_path
):
    state = with_state(**{name: NO_NUMBERS[got]})
    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", state)
    said = refused_by_all(path, corpus, task)
    assert f"task_state.{name}: required a finite number" in said
    assert said.endswith(f", got {got}")


def test_the_rest_of_the_task_state(corpus, language_model, task, tmp_path):
    checkpoint, path = language_model("rnn_lm"), tmp_path / "edited.pt"
    for field, value, said in (
        (
            "sigma_z",
            -0.5,
            "required a finite number from 0 on (nats), got -0.5",
        ),
        ("score_squashing", 1, "required True or False, got 1"),
        ("data_folder", 1, "required a text, got 1"),
        ("longest_context", 0, "required a whole number from 1 on, got 0"),
        ("longest_context", 16.0, "required a whole number from 1 on, got 16.0"),
    ):
        edited(checkpoint, path, with_state(**{field: value}))
        assert f"task_state.{field}: {said}" in refused_by_all(path, corpus, task)
    edited(checkpoint, path, lambda content: content.update(task_state=[1]))
    assert "task_state: required a dictionary, got a list" in refused_by_all(path, corpus, task)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_parameters_are_finite(value, dtype, corpus, language_model, task, tmp_path):
    def spoil(content):
        bias = content["model"]["decoder.output_projection.bias"].to(dtype)
        bias[[3, 5]] = value
        content["model"]["decoder.output_projection.bias"] = bias

    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", spoil)
    said = refused_by_all(path, corpus, task)
    bias = "model.decoder.output_projection.bias"
    assert f"{bias}: required finite numbers, got 2 of 64 that are not" in said


@pytest.mark.parametrize("owner", ["embed_positions", "adaptive_softmax", "embed_tokens"])
def test_buffers_that_fairseq_never_initialises_may_hold_anything(owner):
    """Of positions (fairseq 0.12.2), the adaptive softmax and the adaptive input."""
    parameters = {f"decoder.{owner}._float_tensor": torch.tensor([math.nan])}
    contents.check({"model": parameters}, "c.pt")


@pytest.mark.parametrize("is_shard", [True, False])
def test_a_shard_of_a_fully_sharded_training(is_shard, corpus, language_model, task, tmp_path):
    """A whole checkpoint of one has the metadata, too."""

    def edit(content):
        content["fsdp_metadata"] = {}
        content["cfg"]["distributed_training"]["use_sharded_state"] = is_shard

    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", edit)
    if is_shard:
        said = "required a whole checkpoint, got one shard of a fully sharded training"
        assert said in refused_by_all(path, corpus, task)
    else:
        assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


def with_bias(change):
    def edit(content):
        name = "decoder.output_projection.bias"
        content["model"][name] = change(content["model"][name])

    return edit


NO_PARAMETERS = {
    "required a tensor, got None": with_bias(lambda bias: None),
    "required a tensor, got a list": with_bias(lambda bias: bias.tolist()),
    "required fractions, got whole numbers": with_bias(lambda bias: bias.long()),
    "got torch.complex64": with_bias(lambda bias: bias.to(torch.complex64)),
    "got torch.float32, torch.sparse_coo": with_bias(lambda bias: bias.to_sparse()),
    "stored whole, got torch.float32": with_bias(lambda bias: bias[:1].expand(10**15)),
    "size mismatch": with_bias(lambda bias: bias[:-1].clone()),
    "model: required a dictionary of tensors, got None": lambda content: content.update(model=None),
    "the names of parameters, got 3": lambda content: content["model"].update({3: torch.ones(1)}),
    "Unexpected key": lambda content: content["model"].update(more=torch.ones(1)),
    "Missing key": lambda content: content["model"].clear(),
}


@pytest.mark.parametrize("said", NO_PARAMETERS)
def test_parameters_that_are_none(said, corpus, language_model, task, tmp_path):
    path = edited(language_model("rnn_lm"), tmp_path / "edited.pt", NO_PARAMETERS[said])
    assert said in refused_by_all(path, corpus, task)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these are a prototype
        return torch.nested.nested_tensor([torch.zeros(3), torch.zeros(2)])


def shadowed():
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.numel = 5
    return parameter


class OtherTensor(torch.Tensor):
    """Of a class of its own."""


NO_TENSORS = {
    "a dense tensor of numbers, stored whole, got nested torch.float32": nested,
    "a tensor, got one with a numel of its own": shadowed,
    "a tensor, got a OtherTensor": lambda: torch.zeros(3).as_subclass(OtherTensor),
}


@pytest.mark.parametrize("said", NO_TENSORS)
def test_tensors_with_ways_of_their_own(said):
    with pytest.raises(CheckpointError, match=f"c.pt: model.bias: required {said}"):
        contents.check({"model": {"bias": NO_TENSORS[said]()}}, "c.pt")


@pytest.mark.parametrize("said", modern(*list(NO_TENSORS)[:2]))
def test_they_are_read_and_refused(said, corpus, language_model, task, tmp_path):
    change = with_bias(lambda bias: NO_TENSORS[said]())
    path = edited(language_model("rnn_lm"), tmp_path / "edited.pt", change)
    assert said in refused_by_all(path, corpus, task)


def test_a_model_that_takes_no_words(corpus, language_model, task, tmp_path):
    path = edited(
        language_model("transformer_lm"),
        tmp_path / "e.pt",
        lambda content: set_options(content, max_target_positions=0),
    )
    said = refused_by_all(path, corpus, task)
    assert "positions: required at least 1 (word that the model reads at once), got 0" in said


def part(name, value):
    return lambda content: content["cfg"].update({name: value})


NO_CONFIGURATIONS = {
    "no configuration": lambda content: content.update(cfg=None),
    "a list": lambda content: content.update(cfg=[1]),
    "a text": lambda content: content.update(cfg="${"),
    "no model": part("model", None),
    "a number as model": part("model", 3),
    "a text as model": part("model", "rnn_lm"),
    "an empty model": part("model", {}),
    "a name that is none": part("model", {"_name": ["rnn_lm"]}),
    "an interpolation": lambda content: set_options(content, dropout="${nowhere.at_all}"),
    "a text for a number": lambda content: set_options(content, dropout="x"),
    "a tensor for a number": lambda content: set_options(content, dropout=torch.ones(2)),
    "options that are none": lambda content: content.update(args=3),
    "empty options": lambda content: content.update(args=Namespace()),
}


@pytest.mark.parametrize("kind", NO_CONFIGURATIONS)
def test_configurations_that_are_none(kind, corpus, language_model, task, tmp_path):
    path = edited(language_model("rnn_lm"), tmp_path / "edited.pt", NO_CONFIGURATIONS[kind])
    assert "required a" in refused(path, corpus)
    with pytest.raises(CheckpointError, match="required a"):
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)


def test_scores_that_overflow_are_none(language_model, tmp_path):
    """Every parameter is finite, and yet no score is."""
    large = with_bias(lambda bias: 3e38 * (1 - 2 * torch.eye(len(bias))[5]))
    scorer = Scorer.from_checkpoint(edited(language_model("rnn_lm"), tmp_path / "e.pt", large))
    with pytest.raises(ScoringError, match="scores: required finite numbers, got"):
        scorer.with_exact(True).score([scorer.dictionary[5]])
    with pytest.raises(ScoringError, match="scores: required finite numbers, got"):
        scorer.with_exact(True).extend(scorer.start(), [5])


def test_the_command_eval_lm_says_it_too(corpus, language_model, tmp_path):
    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", with_state(mu_z=math.nan))
    last = evaluate(corpus, path, "--unnormalized", check=False).splitlines()[-1]
    assert last.endswith("required a finite number (nats), got nan")


def test_a_path_with_a_colon_is_no_ensemble(corpus, language_model, tmp_path):
    (tmp_path / "12:30").mkdir()
    path = shutil.copy(language_model("rnn_lm"), tmp_path / "12:30" / "checkpoint_best.pt")
    whole_command = ["--user-dir", PLUGIN]
    assert perplexity(evaluate(corpus, path, "--unnormalized", *whole_command)) > 1


def test_a_dictionary_of_other_words_is_refused_by_eval_lm(corpus, language_model, task, tmp_path):
    other = with_state(dictionary_sha256="0" * 64)
    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", other)
    assert "got one of other words" in refused_by_all(path, corpus, task)
