"""docs/flags.md, which lists what fairseq-train --help does not."""

import sys
from pathlib import Path

import forks

ROOT = Path(__file__).parents[1]


def test_the_page_is_what_the_script_prints():
    done = forks.run([sys.executable, ROOT / "scripts" / "list_flags.py", "--check"])
    assert done.returncode == 0, done.stdout.decode("utf-8")


def test_it_has_every_recurrent_flag():
    from dataclasses import fields

    from fairseq_bnce.models.rnn_lm import RecurrentConfig

    text = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    for field in fields(RecurrentConfig):
        if field.name != "_name":
            assert f"`--{field.name.replace('_', '-')}`" in text
