"""A folder in which a bench makes data, texts and models, each once, and keeps its results."""

import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, Optional

from . import machine, processes
from .command import say

# Sentences, of 400 words at most: lengths in the made data are geometrically distributed about 20.
BLOCKS = ["--sample-break-mode", "eos", "--tokens-per-sample", "400"]
BLOCKS += ["--num-workers", "0", "--no-progress-bar"]


def make_data(folder: Path, threads: int, vocab: int, tokens: int) -> Path:
    """Make a corpus with measures/data.py unless it exists, and return its folder."""
    if not folder.is_dir():
        say(f"{folder.name}: making data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        out = folder.with_name(f"{folder.name}.json")
        size = {"vocab": vocab, "tokens": tokens}
        processes.call("experiments.measures.data.make", out, threads, folder=folder, **size)
    return folder


class Workshop:
    """The folder, and commands whose output goes to its log.

    Args:
        options: of bench.py: ``out``, which is made, and ``threads``.
    """

    def __init__(self, options: Any):
        self.options, self.threads, self.out = options, options.threads, options.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)

    def at(self, folder: str, name: str) -> Path:
        """Return the path of a file, and make its folder."""
        (self.out / folder).mkdir(parents=True, exist_ok=True)
        return self.out / folder / name

    def command(self, *command: Any, printed: Optional[Path] = None) -> processes.Ended:
        """Run a command; ``printed`` receives its standard output."""
        return processes.run(command, self.out / "log", self.threads, printed)

    def bnce(self, *arguments: Any, printed: Optional[Path] = None) -> processes.Ended:
        """Run a sub-command of fairseq-bnce."""
        return self.command(sys.executable, "-m", "fairseq_bnce.cli", *arguments, printed=printed)

    def fairseq(self, name: str, data: Path, *flags: Any, **printed: Any) -> processes.Ended:
        """Run fairseq's command ``train`` or ``eval_lm``."""
        given = [data, "--user-dir", machine.PLUGIN, *flags]
        return self.command(sys.executable, "-m", f"fairseq_cli.{name}", *given, **printed)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is in OUT/NAME.json; if there is no such file, make it."""
        path = self.out / f"{name}.json"
        if not path.exists():
            say(name)
            path.write_text(json.dumps(make()), encoding="utf-8")
        return json.loads(path.read_text(encoding="utf-8"))

    def corpus(self, vocab: int, tokens: int) -> Path:
        """Return the folder of made data."""
        return make_data(self.out / f"data-{vocab}-{tokens}", self.threads, vocab, tokens)

    def model(self, data: Path, name: str, *flags: Any) -> Path:
        """Return the checkpoint of a model."""
        checkpoint = self.out / f"model-{name}" / "checkpoint_last.pt"
        if not checkpoint.is_file():
            places = ["--task", "language_modeling", "--save-dir", checkpoint.parent]
            self.fairseq("train", data, *places, *BLOCKS, *flags)
        return checkpoint


def run_all(options: Any, stages: Dict[str, Callable[[Workshop], Any]]) -> Any:
    """Run the chosen stages, or all of them, and return what the last stage found."""
    shop, found = Workshop(options), None
    for name in options.only or stages:
        say(name)
        found = stages[name](shop)
    return found


def lines_of(path: Path) -> Iterator[str]:
    """Return the lines of a file without their ends."""
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            yield line.rstrip("\n")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write the lines of a file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
