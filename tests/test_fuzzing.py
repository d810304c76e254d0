"""Fuzzed inputs: no traceback, no hang, and no wrong answer with status 0. See fuzzing.py."""

import contextlib
import copy
import io
import random
import shutil
import sys

import fuzzing
import fuzzing_flags
import pytest
import torch
from tools import call_command

from fairseq_bnce import checkpoints

pytestmark = pytest.mark.modern
CHUNK = 100  # cases of a test


@pytest.fixture(scope="module")
def path(language_model):
    return language_model("rnn_lm")


@pytest.fixture(scope="module")
def model(path):
    return fuzzing.Reference(path)


@pytest.fixture
def loaded_once(path, monkeypatch):
    """A checkpoint is read once; each command gets a copy of what is in it.

    Threads stay as they are: forks of this process (forks.py) would not survive more.
    """
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    trained = checkpoints.load(str(path))
    load = checkpoints.load

    def loaded(given, data=None):
        return copy.deepcopy(trained) if given == str(path) else load(given, data)

    monkeypatch.setattr(checkpoints, "load", loaded)


def run(arguments):
    output, errors = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
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


@pytest.mark.parametrize("name", fuzzing.CASES)
def test_some_inputs(name, tmp_path, path, model, loaded_once):
    fuzz(name, 0, tmp_path, path, model)


# ---------------------------------------------------------------- the flags of fairseq-train


def check_flags(part, arguments, corpus):
    """Whether there is an object; else there is an error that names one of the flags."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            assert fuzzing_flags.built(part, arguments, corpus) is not None
    except ValueError as error:  # some of them end the process, too
        said = str(error)
        assert ": required " in said and ", got " in said, said
    except SystemExit:
        said = errors.getvalue().splitlines()[-1]
    else:
        return True
    assert any(argument.partition("=")[0] in said for argument in arguments), said
    return False


def fuzz_flags(seed, corpus):
    for number in range(CHUNK):
        rng = random.Random(f"flags {seed} {number}")
        part = rng.choice([part for part in fuzzing_flags.parts() if part.kind == "criterion"])
        arguments = fuzzing_flags.case(rng, part)
        try:
            check_flags(part, arguments, corpus)
        except BaseException:
            print(f"flags, seed {seed}, number {number}: {part.name} {arguments}")
            raise


def test_all_criteria_optimisers_and_models_are_fuzzed():
    names = {part.name for part in fuzzing_flags.parts()}
    assert {"bnce", "shared_nce", "nce", "nce_regularized", "self_norm_softmax"} < names
    assert {"sparse_sgd", "sparse_adagrad", "rowwise_adagrad", "lazy_adam"} < names
    assert {"rnn_lm", "ffnn_lm", "lbl_lm", "sampled_softmax"} < names


@pytest.mark.parametrize("seed", range(1))
def test_some_flags(seed, corpus):
    fuzz_flags(seed, corpus)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_flags(seed, corpus):
    fuzz_flags(seed, corpus)


def faults(part, flag, values, corpus, never=()):
    """What goes wrong with these values of one flag."""
    for value in values:
        try:
            is_built = check_flags(part, [f"{flag}={value}"], corpus)
            assert not (is_built and value in never), "built"
        except Exception as error:
            yield f"{part.name} {flag}={value}: {type(error).__name__}: {error}"[:300]


# fairseq and torch refuse values of the other kinds' flags, in words of their own.
@pytest.mark.parametrize("kind", ["criterion"])
def test_every_flag_with_every_value(kind, corpus):
    found = []
    for part in fuzzing_flags.parts():
        for flag, values in fuzzing_flags.flags(part).items():
            if part.kind == kind:
                never = fuzzing_flags.never(part)[flag]
                found += faults(part, flag, dict.fromkeys([*values, *never]), corpus, never)
    assert not found, "\n".join(found)
