"""What the scripts' command lines share: here, how they end."""

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
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with forks.Popen([sys.executable, SCRIPTS / line[0], *line[1:]], **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
