"""A folder in which a bench makes data, texts and models, each once, and keeps its results."""

import json
import sys
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional

from . import machine, processes
from .command import say
from .recipes import words

# Sentences, of 400 words at most: lengths in the made data are geometrically distributed about 20.
BLOCKS = "--sample-break-mode eos --tokens-per-sample 400 --num-workers 0 --no-progress-bar"
_TRAIN = "fairseq-train {data} --user-dir {plugin} --task language_modeling --save-dir {saved}"
_PROGRAMS = {
    "fairseq-bnce": "fairseq_bnce.cli",
    "fairseq-train": "fairseq_cli.train",
    "fairseq-eval-lm": "fairseq_cli.eval_lm",
}


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

    def run(self, *line: str, printed: Optional[Path] = None, **values: Any) -> processes.Ended:
        """Run a command line; ``printed`` receives its standard output.

        Args:
            line: its parts; {NAME} in a word stands for one of the values or options.
        """
        known = {**vars(self.options), "out": self.out, "plugin": machine.PLUGIN, **values}
        program, *given = (word.format(**known) for word in words(line))
        start = [sys.executable, "-m", _PROGRAMS[program]] if program in _PROGRAMS else [program]
        return processes.run([*start, *given], self.out / "log", self.threads, printed)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is in OUT/NAME.json; if there is no such file, make it."""
        path = self.out / f"{name}.json"
        if not path.exists():
            say(name)
            write(path, [json.dumps(make())])
        return json.loads(path.read_text(encoding="utf-8"))

    def corpus(self, vocab: int, tokens: int) -> Path:
        """Return the folder of made data."""
        return make_data(self.out / f"data-{vocab}-{tokens}", self.threads, vocab, tokens)

    def model(self, data: Path, name: str, *flags: str) -> Path:
        """Return the checkpoint of a model."""
        checkpoint = self.out / f"model-{name}" / "checkpoint_last.pt"
        if not checkpoint.is_file():
            self.run(_TRAIN, BLOCKS, *flags, data=data, saved=checkpoint.parent)
        return checkpoint


def run_all(options: Any, stages: Mapping[str, Callable[[Workshop], Any]]) -> Any:
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
