"""Fuzzed inputs: no traceback, no hang, and no wrong answer with status 0. See fuzzing.py."""

import contextlib
import copy
import io
import random
import shutil
import signal
import sys

import fuzzing
import pytest
from tools import call_command

from fairseq_bnce.scoring import checkpoints

SECONDS = 30  # of a case, on a machine that has other work
CHUNK = 100  # cases of a test
FEW = {"score": 1, "rescore": 1, "complete": 1}
MANY = {"score": 30, "rescore": 40, "complete": 20}


def chunks(counts, start=0):
    return [(name, start + number) for name, count in counts.items() for number in range(count)]


@contextlib.contextmanager
def alarm(seconds):
    """TimeoutError after so many seconds."""

    def ring(*_):
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def path(language_model):
    return language_model("rnn_lm")


@pytest.fixture(scope="module")
def model(path):
    return fuzzing.Reference(path)


@pytest.fixture
def loaded_once(path, monkeypatch):
    """A checkpoint is read once; each command gets a copy of what is in it."""
    trained = checkpoints.load(str(path))
    load = checkpoints.load

    def loaded(given, data=None):
        return copy.deepcopy(trained) if given == str(path) else load(given, data)

    monkeypatch.setattr(checkpoints, "load", loaded)


def run(arguments):
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors), alarm(SECONDS):
        status = call_command(*arguments)
        sys.stdout.flush()
    return fuzzing.Result(status, output.buffer.getvalue(), errors.getvalue())


def check(case, path):
    arguments = [str(path) if argument == "MODEL" else argument for argument in case.arguments]
    if arguments[0] != "rescore":
        arguments[1:1] = ["--path", str(path)]
    result = run(arguments)
    assert result.status in (0, 2)
    if result.status == 0:
        case.check(result)
        return 0
    last = result.errors.splitlines()[-1]
    assert last.startswith("fairseq-bnce") and ": error: " in last
    assert "usage: " in result.errors or len(last) < 900
    return 2


def fuzz(name, seed, folder, path, model):
    """A chunk of cases, of which some have to end well."""
    ends = []
    for number in range(CHUNK):
        rng = random.Random(f"{name} {seed} {number}")
        here = folder / str(number)
        here.mkdir()
        case = fuzzing.CASES[name](rng, here, model)
        try:
            ends.append(check(case, path))
        except BaseException:
            print(f"{name}, seed {seed}, number {number}: {case.arguments}")
            raise
        shutil.rmtree(here)
    assert 0.1 * CHUNK < ends.count(0) < CHUNK


@pytest.mark.parametrize(("name", "seed"), chunks(FEW))
def test_some_inputs(name, seed, tmp_path, path, model, loaded_once):
    fuzz(name, seed, tmp_path, path, model)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), chunks(MANY, start=100))
def test_many_inputs(name, seed, tmp_path, path, model, loaded_once):
    fuzz(name, seed, tmp_path, path, model)
