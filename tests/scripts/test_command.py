"""What the scripts' command lines share: here, how they end."""

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
