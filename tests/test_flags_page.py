"""docs/flags.md, which lists what fairseq-train --help does not."""

import sys
from pathlib import Path

import forks

ROOT = Path(__file__).parents[1]


def test_the_page_is_what_the_script_prints():
    done = forks.run([sys.executable, ROOT / "scripts" / "list_flags.py", "--check"])
    assert done.returncode == 0, done.stdout.decode("utf-8")
