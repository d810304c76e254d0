"""scripts/quickstart.py, with tiny models."""

import itertools
import json
import os
import shlex
import sys
from pathlib import Path

import forks
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """(folder, what was printed) of a run with tiny models."""
    folder = tmp_path_factory.mktemp("quickstart")
    flags = ["--max-epoch", "1", "--decoder-embed-dim", "8", "--decoder-hidden-size", "8"]
    flags += ["--decoder-out-embed-dim", "8", "--batch-size", "256"]
    command = [sys.executable, SCRIPTS / "quickstart.py", "--out", "run", "--", *flags]
    done = forks.run(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    printed = done.stdout.decode("utf-8")
    assert done.returncode == 0, printed
    return folder, printed


def test_whole_run(small_run) -> None:
    folder, printed = small_run
    for row in ("unigram", "cross_entropy (softmax)", "bnce, exact", "bnce, unnormalised"):
        assert row in printed
    assert "'_name'" not in printed and "tensorboardX" not in printed
    assert len(printed) < 12_000  # fairseq's configuration alone has 25,000
    rows = json.loads((folder / "run" / "results.json").read_text())["rows"]
    for name, values in rows.items():
        assert f"{name:34} {values['ppl']:15.2f}" in printed
    assert "'criterion': {'_name': 'bnce'" in (folder / "run" / "bnce" / "train.log").read_text()


def test_commands_to_try_next_work_as_they_are_printed(small_run) -> None:
    folder, printed = small_run
    printed_last = printed.split("Try next:")[1].splitlines()
    lines = [shlex.split(line) for line in printed_last if line.startswith("  ")]

    def output(name):
        line = next(line for line in lines if line[1] == name)
        done = forks.run([sys.executable, *itertools.takewhile("|".__ne__, line)], cwd=folder)
        assert done.returncode == 0, done.stdout.decode("utf-8")
        return done.stdout

    assert output("rescore").count(b"BNCE=") == 9
    # The text is of this Python's documentation: there may be a line on unknown words first.
    answers = output("complete").partition(b"id,unnormalized,")[2]
    assert len(answers.splitlines()) == 1 + 5
    assert len(output("score").splitlines()) > 200
