"""A small corpus with Zipf-like word frequencies, binarised once a session."""

import contextlib
import functools
import gc
import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
import types

import composing
import forks
import pytest
import torch
from fairseq.dataclass import utils
from scoring_models import FLAGS
from tools import LSTM, binarise, build, call_command, composed, train, write_lines

import fairseq_bnce
from fairseq_bnce import decoding
from fairseq_bnce.checkpoints import allowed

# Of asserts in modules without tests pytest shows no values, unless it is asked to.
pytest.register_assert_rewrite("loss_cases", "two_ranks")

TYPES = 60
# With several GPUs fairseq-train starts a process for each.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")

# scripts/setup_env.sh installs them in today's environment, up to Python 3.12; extras don't.
_HAS_DECODERS = all(map(importlib.util.find_spec, ("flashlight", "pyctcdecode")))
_OF_DECODERS = ["test_decoders.py", "test_decoding.py", "test_decoding_libraries.py"]
_OF_DECODERS += ["scripts/test_bench_decod*.py"]
collect_ignore_glob = [] if _HAS_DECODERS else _OF_DECODERS

# What a shell starts in the background ignores Ctrl-C, and what that starts does in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests read checkpoints by torch.load, and name what the plugin registers.
fairseq_bnce.register()
# Commands run in forks of this process (tools.py), which a pool of threads does not survive.
torch.set_num_threads(1)
# What torch's optimisers import late: once here, not for seconds in every fork.
with contextlib.suppress(ImportError):  # torch 1.13 has none
    importlib.import_module("torch._dynamo")
utils.compose = composing.compose
# For what hydra and inspect keep of the first time: a tenth of a second less a fork.
composed(["", "--task", "language_modeling", *LSTM])
# A million objects that stay: no collection need look at them, nor a fork copy their pages.
gc.freeze()


def zipf_lines(count: int, seed: int, types: int = TYPES) -> list:
    """Sentences in which a word's successor depends on it, so that there is something to learn."""
    rng = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(types)]
    lines = []
    for _ in range(count):
        words = rng.choices(range(types), weights, k=rng.randint(3, 12))
        chained = [w if i % 2 == 0 else (words[i - 1] * 7 + 3) % types for i, w in enumerate(words)]
        lines.append(" ".join(f"w{word}" for word in chained))
    return lines


@pytest.fixture(scope="session", autouse=True)
def current_folder(tmp_path_factory):
    """Where tests run, and leave nothing: the checkout may have a training's checkpoints/.

    That is fairseq's default folder, whose checkpoint a criterion is told of before it is built.
    """
    folder = tmp_path_factory.mktemp("current")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield
    assert not os.listdir(folder)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder as fairseq-preprocess --only-source makes it: train, valid and test."""
    folder = tmp_path_factory.mktemp("corpus")
    for split, count, seed in (("train", 300, 300), ("valid", 40, 40), ("test", 40, 41)):
        write_lines(folder / f"{split}.txt", zipf_lines(count, seed))
    return binarise(folder, folder / "bin")


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """A parallel corpus: the target is the source with other names for the words."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, count in (("train", 200), ("valid", 30)):
        lines = zipf_lines(count, seed=count + 1)
        write_lines(folder / f"{split}.fr", lines)
        write_lines(folder / f"{split}.en", [line.replace("w", "v") for line in lines])
    return binarise(folder, folder / "bin", "--source-lang", "fr", "--target-lang", "en")


@pytest.fixture(scope="session")
def training(corpus, tmp_path_factory):
    """Train with these flags, once a session: (checkpoint, what fairseq-train printed)."""

    @functools.lru_cache(maxsize=None)
    def make(*flags, plugin=True):
        folder = tmp_path_factory.mktemp("training")
        return folder / "checkpoint_last.pt", train(corpus, folder, *flags, plugin=plugin)

    return make


@pytest.fixture(scope="session")
def language_model(training):
    """Train an architecture of scoring_models.FLAGS a little: its checkpoint."""

    def make(name):
        return training(*FLAGS[name])[0]

    return make


@pytest.fixture
def made(language_model):
    """A scorer of a model by its name (scoring_models.py)."""

    def make(name, **options):
        return fairseq_bnce.Scorer.from_checkpoint(language_model(name), **options)

    return make


@pytest.fixture
def command(language_model, capfd):
    """Run a command of ``fairseq-bnce`` in this process: (exit status, its output, its errors)."""

    def call(name, *arguments, model="rnn_lm"):
        path = ["--path", language_model(model)] if model else []
        capfd.readouterr()
        return (call_command(name, *path, *arguments), *capfd.readouterr())

    return call


@pytest.fixture
def espnet_scorer(monkeypatch):
    """The adapter for ESPnet, over what stands in for the library."""
    library = types.SimpleNamespace(BatchPartialScorerInterface=object)
    monkeypatch.setitem(sys.modules, "espnet.nets.scorer_interface", library)
    monkeypatch.delitem(sys.modules, "fairseq_bnce.decoding.espnet", raising=False)
    yield decoding.EspnetScorer
    sys.modules.pop("fairseq_bnce.decoding.espnet")


@pytest.fixture(scope="module")
def task(corpus):
    """As fairseq-eval-lm sets it up."""
    return build(corpus, "--arch", "rnn_lm", "--criterion", "bnce")[1]


@pytest.fixture(params=["by torch", "by our list"])
def any_torch(request, monkeypatch):
    """Both ways of reading a checkpoint, whichever torch is here."""
    if request.param == "by our list":
        monkeypatch.setattr(allowed, "TORCH_CHECKS", False)


@pytest.fixture
def start_process():
    """Start a process that is over with the test, and killed if that hangs."""
    processes, timers = [], []

    def call(command, start=forks.Popen, seconds=100, **named):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii"}
        processes.append(start(list(map(str, command)), **{**pipes, **named, "env": environment}))
        timers.append(threading.Timer(seconds, processes[-1].kill))  # what waits for it fails then
        timers[-1].start()
        return processes[-1]

    yield call
    for process, timer in zip(processes, timers):
        timer.cancel()
        forks.end(process)


@pytest.fixture
def empty_folder(monkeypatch, tmp_path):
    """For fairseq's trainer, which saves into the current one."""
    monkeypatch.chdir(tmp_path)
