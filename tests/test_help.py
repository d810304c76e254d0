"""``--help`` of every command: as wide as a terminal, nothing else in front of it, at once."""

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
LIGHT = """
import sys
from fairseq_bnce import cli

for name in cli.COMMANDS:
    for flags in (["--help"], ["--nosuch"], []):
        try:
            status = cli.main([name, *flags])
        except SystemExit as error:
            status = error.code
        assert status == (0 if "--help" in flags else 2), (name, flags, status)
        assert sys.modules.keys().isdisjoint(["torch", "fairseq"]), (name, flags)
"""


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


def test_help_and_usage_errors_wait_for_neither_torch_nor_fairseq() -> None:
    command = [sys.executable, "-c", LIGHT]
    done = subprocess.run(command, capture_output=True, cwd=SCRIPTS.parent)
    assert done.returncode == 0, done.stderr.decode()


def test_the_page_of_flags_is_what_the_script_prints() -> None:
    """docs/flags.md, which lists what fairseq-train --help does not."""
    status, output = forks.script("list_flags.py", "--check")
    assert status == 0, output
