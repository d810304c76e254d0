"""What the scripts' command lines share: how they end, and what they import."""

import os
import subprocess
import sys
from pathlib import Path

import forks
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    "line", [["recipe.py", "--list"], ["list_flags.py"], ["render_tables.py", "--list"]]
)
def test_a_list_that_nobody_reads_ends_quietly(line):
    """As under ``| head``."""
    reading, writing = os.pipe()
    os.close(reading)  # before anything is written, which a pipe would hold
    command = [sys.executable, SCRIPTS / line[0], *line[1:]]
    with forks.Popen(command, stdout=writing, stderr=subprocess.PIPE) as process:
        os.close(writing)
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    "script", ["bench_decoding", "bench_scoring", "bench_vocab", "compare", "recipe"]
)
def test_what_measures_its_childrens_memory_stays_small(script):
    """Linux counts what the parent held as its child's peak."""
    program = (
        f"import sys, {script}; print(sorted({{'torch', 'numpy', 'fairseq'}} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    assert subprocess.check_output([sys.executable, "-c", program], env=env) == b"[]\n"
