"""Small models that score sentences, for the benchmarks of scoring and decoding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, List, Sequence

from . import machine, processes
from .run import AS_TEXT

# Words of a sentence; a model takes no longer ones than it is trained for. The made data's lengths
# are geometrically distributed about 20.
LONGEST = "400"
_BLOCKS = ["--sample-break-mode", "eos", "--tokens-per-sample", LONGEST]
_COMMON = [*_BLOCKS, "--num-workers", "0", "--no-progress-bar"]


def fairseq(command: str, data: Path, *flags: Any) -> List[str]:
    """A command line of fairseq's, with this plugin."""
    words = [sys.executable, "-m", f"fairseq_cli.{command}", data]
    return [*map(str, [*words, "--user-dir", machine.plugin_folder(), *flags])]


def train(data: Path, checkpoint: Path, flags: Sequence[str], log: Path, threads: int) -> None:
    """Train a model, unless its checkpoint is there."""
    if not checkpoint.is_file():
        places = ["--task", "language_modeling", "--save-dir", checkpoint.parent]
        processes.run(fairseq("train", data, *places, *_COMMON, *flags), log, threads)


def eval_lm(data: Path, checkpoint: Path, split: str, *flags: str) -> List[str]:
    """The command line that scores every word of a split, a sentence a sample."""
    places = ["--path", checkpoint, "--gen-subset", split, "--output-word-probs"]
    return fairseq("eval_lm", data, *places, *_COMMON, *flags)


def write_text(data: Path, split: str, text: Path, log: Path, threads: int) -> Path:
    """A split as text, unless it is there."""
    if not text.is_file():
        command = [
            sys.executable,
            AS_TEXT,
            str(data),
            split,
            str(text),
        ]
        processes.run(command, log, threads)
    return text
