"""Nothing in a checkpoint runs: no pickled code, no TorchScript, no text that fairseq evaluates."""

import importlib
import re
import shutil
import sys
import threading
from argparse import Namespace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import fairseq
import numpy as np
import pytest
import torch
from checkpoint_edits import CONTAINERS, Malicious, edited, set_options, with_torchscript
from fairseq import checkpoint_utils, utils
from fairseq.models.speech_to_text import xm_transformer
from tools import modern

from fairseq_bnce import Scorer
from fairseq_bnce.checkpoints import allowed
from fairseq_bnce.checkpoints.literals import only_literals
from fairseq_bnce.scoring import CheckpointError

LITERALS = {
    "[(512, 4)] * 2 + [(1024, 4)]": [(512, 4), (512, 4), (1024, 4)],
    "((32, 3, 2, 2, True),) * 2": ((32, 3, 2, 2, True),) * 2,
    "10000,50000,200000": (10000, 50000, 200000),
    " [3, 7, -1]\n": [3, 7, -1],
    "(0.9, 1e-8)": (0.9, 1e-8),
    "{'name': 'nystrom', 'landmarks': [2 * 3]}": {"name": "nystrom", "landmarks": [6]},
    "None": None,
}
PROGRAMS = ["print(1)", "a", "a.b", "a[0]", "[x for x in (1,)]", "lambda: 1", "f'{1}'", "9 ** 9"]
PROGRAMS += ["*a", "{**a}", "1 if a else 2", "(a := 1)", "${task.data}", "", "\0"]

# The model of scoring_models.FLAGS, the field, and other options without which none evaluates it.
ADAPTIVE = ("lstm_lm", "adaptive_softmax_cutoff", {"criterion": "adaptive_loss"})
CONVOLUTIONAL = ("fconv_lm", "decoder_layers", {})
EVALUATED = [(*ADAPTIVE, "dict"), *((*CONVOLUTIONAL, container) for container in CONTAINERS[1:])]
EVALUATED += modern(("transformer_lm", "adaptive_input_cutoff", {"adaptive_input": True}, "dict"))


@pytest.fixture
def made(tmp_path):
    """A folder that a program would make, and that does not exist after the test."""
    yield tmp_path / "made"
    assert not (tmp_path / "made").exists()


@pytest.fixture
def program(made):
    return f"[__import__('os').mkdir({str(made)!r})]"


def check_refused(path, corpus, task, said):
    """By Scorer, fairseq-eval-lm and fairseq-validate, which has no task."""
    load = partial(checkpoint_utils.load_model_ensemble_and_task, [str(path)])
    scorer = partial(Scorer.from_checkpoint, path, corpus)
    for door in (scorer, partial(load, task=task), load):
        with pytest.raises(CheckpointError) as caught:
            door()
        assert str(path) in str(caught.value) and said in str(caught.value)


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("is_told", [False, True], ids=["", "torch is told not to check"])
def test_pickled_code(is_told, is_zip, any_torch, corpus, task, made, tmp_path, monkeypatch):
    if is_told:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = str(tmp_path / "bad.pt")
    content = {"model": {}, "cfg": {}, "extra": Malicious(made)}
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)
    check_refused(path, corpus, task, "mkdir")
    monkeypatch.setattr(xm_transformer, "base_architecture", lambda args: None)
    options = SimpleNamespace(load_pretrained_decoder_from=path)
    for load, given in (
        (checkpoint_utils.load_checkpoint_to_cpu, [path]),  # fairseq-train
        (checkpoint_utils.load_ema_from_checkpoint, [path]),
        (xm_transformer.XMTransformerModel.build_model, [options, None]),
    ):
        with pytest.raises(CheckpointError, match="mkdir"):
            load(*given)
    assert not made.exists()
    torch.load(path, weights_only=False)  # does run it
    made.rmdir()


@pytest.mark.filterwarnings("ignore:'torch.load' received a zip file that looks like a TorchScript")
def test_torchscript(corpus, language_model, task, tmp_path):
    """torch leaves a file with a plain data.pkl to torch.jit.load, if the file has code as well.

    Where torch has no check, our reader takes the data.pkl and leaves the code alone.
    """
    path = with_torchscript(language_model("rnn_lm"), tmp_path / "bad.pt")
    if allowed.TORCH_CHECKS:
        check_refused(path, corpus, task, "TorchScript")
    else:
        assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


@pytest.fixture
def with_options(language_model, tmp_path):
    """A model's checkpoint with other options in it."""

    def make(name, container="dict", **options):
        edit = lambda content: set_options(content, **options)  # noqa: E731
        return edited(language_model(name), tmp_path / "edited.pt", edit, container)

    return make


@pytest.mark.parametrize("name, field, others, container", EVALUATED)
def test_evaluated_texts(name, field, others, container, corpus, with_options, task, program):
    path = with_options(name, container, **{field: program}, **others)
    check_refused(path, corpus, task, "literal")


@pytest.mark.parametrize("way", ["in shards", "read before", "by another task"])
def test_in_any_other_way_that_fairseq_loads(way, with_options, task, program, tmp_path):
    """Under --checkpoint-shard-count, as a content, by fairseq-generate of a translation task."""
    name, field, others = ADAPTIVE
    named = path = with_options(name, **{field: program}, **others)
    options, given = {}, task
    if way == "in shards":
        for part in (0, 1):
            shutil.copy(path, tmp_path / f"evil_part{part}.pt")
        named, options = tmp_path / "evil.pt", {"num_shards": 2, "strict": False}
    elif way == "read before":
        options = {"state": checkpoint_utils.load_checkpoint_to_cpu(str(path))}
    else:
        build = lambda options: utils.eval_str_list(options.adaptive_softmax_cutoff)  # noqa: E731
        given = SimpleNamespace(load_state_dict=lambda state: None, build_model=build)
    with pytest.raises(CheckpointError, match="literal.*__import__"):
        checkpoint_utils.load_model_ensemble_and_task([str(named)], task=given, **options)


OWN = """
from fairseq.models import register_model, register_model_architecture
from fairseq.models.lstm_lm import LSTMLanguageModel, base_architecture

@register_model("own_lm")
class OwnModel(LSTMLanguageModel):
    @classmethod
    def build_model(cls, args, task):
        from .late import evaluated  # imported while the model is built
        evaluated(args.late), eval(args.own), eval(args.own, globals())
        return super().build_model(args, task)

@register_model_architecture("own_lm", "own_lm")
def own(args):
    eval(args.own)
    base_architecture(args)
"""


def test_an_architecture_of_a_users_own(corpus, with_options, task, program, tmp_path):
    """In its package, and in a module that is imported only while the model is built."""
    package = tmp_path / "own_architecture"
    package.mkdir()
    (package / "__init__.py").write_text(OWN)
    (package / "late.py").write_text("def evaluated(text):\n    return eval(text)\n")
    utils.import_user_module(Namespace(user_dir=str(package)))
    finders = list(sys.meta_path)
    named = {"arch": "own_lm", "_name": "own_lm", "own": "[(1, 2)] * 2", "late": "3"}
    for bad in ("late", "own"):
        sys.modules.pop("own_architecture.late", None)
        path = with_options("lstm_lm", **{**named, bad: program})
        check_refused(path, corpus, task, "literal")
    path = with_options("lstm_lm", **named)
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0
    late = sys.modules["own_architecture.late"]
    assert late.evaluated("len('ab')") == 2 and not hasattr(late, "eval")
    assert sys.meta_path == finders and late.__spec__.loader.get_source(late.__name__)


def evaluating_modules():
    """All modules of fairseq that call eval() and that a registered class may lead to."""
    folder = Path(fairseq.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        evaluates = re.search(r"(?<![.\w])eval\(", path.read_text("utf-8"))
        if evaluates and not name.startswith("fairseq.examples."):
            yield name


def evaluated_in(module, source):
    """What a function of the module gets of ``eval(source)``."""
    names = vars(importlib.import_module(module))
    return eval("eval(source)", names, {"source": source})


@pytest.mark.parametrize("text", LITERALS)
def test_literals(text):
    with only_literals("some.pt"):
        for source in (text, text.encode()):
            assert evaluated_in("fairseq.utils", source) == LITERALS[text]


@pytest.mark.parametrize("text", PROGRAMS)
def test_what_is_no_literal(text):
    array = np.frombuffer(text.encode(), dtype=np.uint8)
    for source in (text, text.encode(), bytearray(text.encode()), array):
        with pytest.raises(CheckpointError), only_literals("some.pt"):
            evaluated_in("fairseq.utils", source)


def test_every_module_of_fairseq_that_evaluates(program, monkeypatch):
    """Of models, tasks, criteria, optimisers and data, whether imported before or meanwhile."""
    found = list(evaluating_modules())
    assert {"fairseq.utils", "fairseq.models.fconv_lm", "fairseq.optim.adam"} <= set(found)
    late = "fairseq.data.codedataset"
    assert late in found
    monkeypatch.delitem(sys.modules, late, raising=False)
    for module in found:
        with pytest.raises(CheckpointError), only_literals("some.pt"):
            evaluated_in(module, program)
        assert not hasattr(sys.modules[module], "eval")


def test_eval_is_what_it_was_for_others():
    before = eval
    with only_literals("some.pt"):
        assert eval is before and "eval" not in globals()
        assert utils.eval_str_list("[1] * 2", int) == [1, 1]
        found = []
        evaluate = lambda: found.append(evaluated_in("fairseq.utils", "max(3, 4)"))  # noqa: E731
        other = threading.Thread(target=evaluate)
        other.start()
        other.join()
        assert found == [4]
        with pytest.raises(CheckpointError), only_literals("some.pt"):
            utils.eval_bool("before")
    assert evaluated_in("fairseq.utils", "source") == "source"


@pytest.mark.parametrize("container", ["dict", "Namespace"])
def test_initial_embeddings(container, corpus, language_model, with_options, task, tmp_path):
    """Their file is not opened.

    The parameters of the checkpoint replace what a training started from."""
    path = with_options("lstm_lm", container, decoder_embed_path=str(tmp_path / "missing"))
    want = Scorer.from_checkpoint(language_model("lstm_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    trained = torch.load(path, weights_only=False)["model"]["decoder.embed_tokens.weight"]
    assert model.decoder.embed_tokens.weight.equal(trained)
