"""Made data and small models in a folder, each made once: for the benchmarks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, List, Optional, Sequence

from . import machine, processes

_MEASURES = Path(__file__).with_name("measures")
# Most words of a sentence. Lengths in the made data are geometrically distributed about 20.
LONGEST = "400"
_BLOCKS = ["--sample-break-mode", "eos", "--tokens-per-sample", LONGEST]
_COMMON = [*_BLOCKS, "--num-workers", "0", "--no-progress-bar"]


def make_data(folder: Path, threads: int, vocab: int, tokens: int) -> Path:
    """Make a corpus with measures/data.py unless it exists, and return its folder."""
    if not folder.is_dir():
        print(f"{folder.name}: making data", file=sys.stderr, flush=True)
        command = [sys.executable, _MEASURES / "data.py", "--out", folder]
        command += ["--vocab", vocab, "--tokens", tokens]
        processes.run(command, folder.with_name(f"{folder.name}.log"), threads)
    return folder


class Workshop:
    """Data, texts and models in a folder; each is made once.

    Args:
        out: the folder, which is made.
        threads: for the commands.
    """

    def __init__(self, out: Path, threads: int):
        self.out, self.threads, self.log = out, threads, out / "runs.log"
        out.mkdir(parents=True, exist_ok=True)

    def run(self, *command: Any, printed: Optional[Path] = None) -> processes.Ended:
        """Run a command; ``printed`` receives its standard output."""
        return processes.run(command, self.log, self.threads, printed)

    def data(self, vocab: int, tokens: int) -> Path:
        """Return the folder of made data."""
        return make_data(self.out / f"data-{vocab}-{tokens}", self.threads, vocab, tokens)

    def model(self, data: Path, name: str, flags: Sequence[str]) -> Path:
        """Return the checkpoint of a model."""
        checkpoint = self.out / f"model-{name}" / "checkpoint_last.pt"
        if not checkpoint.is_file():
            places = ["--task", "language_modeling", "--save-dir", checkpoint.parent]
            self.run(*_fairseq("train", data, *places, *_COMMON, *flags))
        return checkpoint


def eval_lm(data: Path, checkpoint: Path, split: str, *flags: str) -> List[Any]:
    """Return the command line that scores every word of a split, sentence by sentence."""
    places = ["--path", checkpoint, "--gen-subset", split, "--output-word-probs"]
    return _fairseq("eval_lm", data, *places, *_COMMON, *flags)


def _fairseq(command: str, data: Path, *flags: Any) -> List[Any]:
    module = f"fairseq_cli.{command}"
    return [sys.executable, "-m", module, data, "--user-dir", machine.PLUGIN, *flags]
