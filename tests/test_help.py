"""``--help`` of every command: as wide as a terminal, and nothing else in front of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forks
import pytest

from fairseq_bnce.cli import COMMANDS

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
OWN = [["fairseq-bnce"], *(["fairseq-bnce", name] for name in COMMANDS)]
OTHERS = [[path.name] for path in sorted(SCRIPTS.glob("*.py")) if path.name != "environment.py"]
WIDTH = 80


@pytest.mark.modern
@pytest.mark.parametrize("command", [*OWN, *OTHERS], ids=" ".join)
def test_help_fits_a_terminal(command: list) -> None:
    name, *rest = command
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = [sys.executable, SCRIPTS / name, *rest, "--help"]
    with forks.Popen(arguments, env=environment, **pipes) as process:
        output, errors = (text.decode("utf-8") for text in process.communicate())
    assert (process.returncode, errors) == (0, "")
    assert output.startswith(f"usage: {' '.join(command)}")
    assert [line for line in output.splitlines() if len(line) > WIDTH] == []
