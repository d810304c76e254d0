"""scripts/examples/score_with_ray.py, where Ray is installed: pytest -m decoders."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import zipf_lines
from tools import write_lines

from fairseq_bnce import Scorer

pytestmark = pytest.mark.decoders
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "examples" / "score_with_ray.py"


def worker():
    """The process of one of Ray's workers, once its model is loaded; None before."""
    command = ["pgrep", "-fa", "^ray::MapWorker"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    loaded = [line for line in found.splitlines() if "__init__" not in line]
    return int(loaded[0].split()[0]) if loaded else None


@pytest.mark.parametrize("is_killed", [False, True])
def test_scores_are_those_of_the_scorer(is_killed, language_model, tmp_path):
    """A worker that dies loses no line and doubles none."""
    pytest.importorskip("ray.data")
    parquet = pytest.importorskip("pyarrow.parquet")
    model, lines = language_model("lstm_lm"), [*zipf_lines(3000, seed=5), ""]
    write_lines(tmp_path / "text.txt", lines)
    flags = ["--path", model, "--out", tmp_path / "out", tmp_path / "text.txt", "--batch", "20"]
    started = subprocess.Popen([sys.executable, *map(str, [SCRIPT, *flags])])
    found = None
    while is_killed and found is None and started.poll() is None:
        time.sleep(0.01)
        found = worker()
        if found is not None:
            os.kill(found, signal.SIGKILL)
    assert started.wait() == 0 and (found is not None) == is_killed
    table = parquet.read_table(tmp_path / "out").to_pydict()
    assert table["text"] == lines
    want = list(Scorer.from_checkpoint(model).score(lines))
    assert table["log_prob"] == pytest.approx(want, abs=1e-4)
