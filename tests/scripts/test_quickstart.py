"""scripts/quickstart.py: what it shows of a log, and the whole in very small."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import forks
import pytest
import quickstart

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

VALID = '2026 | INFO | valid | {"epoch": 3, "valid_loss": "6.5", "valid_ppl": "90.51"}'
TRAIN = '2026 | INFO | train | {"epoch": 3, "train_loss": "9.25", "train_wps": "3842.6", '
TRAIN += '"train_wpb": "500.5", "train_num_updates": "20"}'
START, END = "INFO | Start iterating over samples", 'INFO | begin validation on "valid" subset'
INNER = '2026 | INFO | train_inner | {"epoch": 3, "loss": "9.25", "wps": "1"}'


def test_an_epoch_is_a_line_with_its_speed_by_processor_time(monkeypatch) -> None:
    epochs = quickstart.Epochs()
    for line in ("{'_name': None, 'common'", INNER, VALID):
        assert epochs.show(line, 1) is None
    want = "epoch  3: training loss  9.250, validation loss  6.500 bits, perplexity   90.51"
    assert want in epochs.show(TRAIN, -1)
    assert epochs.speeds == [3842.6]
    epochs = quickstart.Epochs()
    for line, seconds in ((START, 3.0), (END, 7.0), (VALID, 9.0), (TRAIN, 9.0)):
        monkeypatch.setattr(quickstart, "processor_seconds", lambda _, now=seconds: now)
        epochs.show(line, 1)
    assert epochs.speeds == [20 * 500.5 / 4]
    assert epochs.show("2026 | WARNING | fairseq.x | look out", 1) == "  look out"
    assert epochs.show("2026 | INFO | fairseq_bnce.noise | counted", 1) == "  counted"
    assert epochs.show("2026 | INFO | fairseq.tasks.text_to_speech | Please install", 1) is None


def test_flags_of_bnce_are_not_for_softmax() -> None:
    flags = ["--lr", "1", "--noise-samples", "5", "--row-sparse", "--criterion", "bnce", "--cpu"]
    assert quickstart.without_criterion(flags) == ["--lr", "1", "--cpu"]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """(folder, what was printed) of a run with tiny models."""
    folder = tmp_path_factory.mktemp("quickstart")
    flags = ["--max-epoch", "1", "--decoder-embed-dim", "8", "--decoder-hidden-size", "8"]
    flags += ["--decoder-out-embed-dim", "8", "--batch-size", "256", "--noise-samples", "3"]
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
    assert len(printed) < 12_000  # fairseq's configuration alone has 25,000, three times
    rows = json.loads((folder / "run" / "results.json").read_text())["rows"]
    for name, values in rows.items():
        assert f"{name:34} {values['ppl']:15.2f}" in printed
    assert "'criterion': {'_name': 'bnce'" in (folder / "run" / "bnce" / "train.log").read_text()


def test_commands_to_try_next_work_as_they_are_printed(small_run) -> None:
    folder, printed = small_run
    printed_last = printed.split("Try next:")[1].splitlines()
    lines = [shlex.split(line) for line in printed_last if line.startswith("  ")]
    rescore = next(line for line in lines if line[1:2] == ["rescore"])
    done = forks.run([sys.executable, *rescore], cwd=folder)
    assert done.returncode == 0, done.stdout.decode("utf-8")
    assert done.stdout.count(b"BNCE=") == 9
    complete = next(line for line in lines if line[1:2] == ["complete"])
    done = forks.run([sys.executable, *complete], cwd=folder)
    assert done.returncode == 0
    # The text is of this Python's documentation: there may be a line on unknown words first.
    answers = done.stdout[done.stdout.index(b"id,unnormalized,") :]
    assert len(answers.splitlines()) == 1 + 5
    score = next(line for line in lines if line[1:2] == ["score"])
    done = forks.run([sys.executable, *score[: score.index("|")]], cwd=folder)
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 200
