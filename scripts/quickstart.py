#!/usr/bin/env python3
"""Train B-NCE and softmax on the English text that Python itself ships, and score with both.

The main job in small, through fairseq's own commands: text to binarised data, ``fairseq-train
--criterion bnce`` and ``cross_entropy`` by the same recipe, ``fairseq-eval-lm`` exactly and
``--unnormalized``, and a table of the results. What the commands print is in a log beside each
model; shown is what matters of it. The table is also in FOLDER/results.json.

    scripts/quickstart.py [--out FOLDER] [--no-softmax] [-- further flags of fairseq-train]
"""

import argparse
import csv
import importlib
import json
import logging
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, Optional, Sequence

import environment  # noqa: F401
from experiments import logs, machine, processes, recipes, report

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = str(machine.PLUGIN)
COMMAND = ROOT / "scripts" / "fairseq-bnce"

RECIPE = recipes.words(report.load("recipes")["quickstart"])
LOSSES = """
Now bnce, whose two losses differ in kind: in training it is NCE's, bits of telling a word from the
noise; in validation it is the normalised model's, bits a word, as under cross_entropy."""
SHOWN_LINES = 20  # of the log of a command that failed

Values = Dict[str, float]
# (line, process id) -> what to show of it
Shown = Callable[[str, int], Optional[str]]


def main(argv: Optional[List[str]] = None) -> None:
    """Run all steps; what is prepared already is used again, training starts afresh."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("quickstart-run"))
    parser.add_argument("--no-softmax", action="store_true", help="train bnce alone")
    parser.add_argument("flags", nargs="*", help="further flags of fairseq-train, after --")
    options = parser.parse_args(argv)
    choose_threads()
    logging.disable(logging.INFO)  # fairseq, once imported, says what it misses
    out = options.out.resolve()  # checkpoints remember where their data is
    data = prepare(out)
    rows: Dict[str, Values] = {"unigram distribution": {"ppl": unigram_perplexity(data)}}
    if not options.no_softmax:
        flags = ["--criterion", "cross_entropy", *without_criterion(options.flags)]
        rows["cross_entropy (softmax)"] = train_and_score(data, out / "softmax", flags)
    print(LOSSES)
    flags = ["--criterion", "bnce", *options.flags]
    rows["bnce, exact"] = train_and_score(data, out / "bnce", flags)
    unnormalised = evaluate(data, out / "bnce", "unnormalised", flags, "--unnormalized")
    rows["bnce, unnormalised (no softmax)"] = {"ppl": unnormalised}
    print()
    print(table(rows))
    print(notes(data, out / "bnce"))
    results = json.dumps({**machine.record(), "rows": rows}, indent=1)
    (out / "results.json").write_text(results + "\n", encoding="utf-8")
    sentences = some_sentences(out / "data" / "text" / "test.txt")
    write_nbest(sentences, out / "nbest.txt")
    write_questions(sentences, out / "questions.csv")
    print(next_commands(out))


def choose_threads() -> None:
    """Choose one thread, unless the user has set a number."""
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        print(
            "With one thread (OMP_NUM_THREADS=1): models this small gain little from more, which\n"
            "wait for each other on a machine that is busy. Set OMP_NUM_THREADS to have others."
        )


def prepare(folder: Path) -> Path:
    """Return the folder of the binarised corpus, and make it where it is missing."""
    data = folder / "data"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, str(ROOT / "scripts" / "embedded_corpus.py"), folder / "corpus.txt"])
        split = ["--split", "0.8", "0.1", "0.1", "--split-by", "paragraph"]
        cut = ["--lowercase", "--min-count", "2"]
        text = ["--input", folder / "corpus.txt"]
        run([sys.executable, COMMAND, "prepare-text", *text, *split, *cut, "--out", data])
    return data / "bin"


def without_criterion(flags: List[str]) -> List[str]:
    """Return the user's flags without those that only bnce has."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    importlib.import_module("fairseq_bnce.criterions")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--criterion")
    gen_parser_from_dataclass(parser, CRITERION_DATACLASS_REGISTRY["bnce"]())
    return parser.parse_known_args(flags)[1]


def train_and_score(data: Path, folder: Path, flags: List[str]) -> Values:
    """Train afresh: exact test perplexity, and words a second in training."""
    for old in folder.glob("*.pt"):
        old.unlink()
    recipe = [*RECIPE, "--save-dir", folder, *device(), *flags]
    epochs = Epochs()
    fairseq("train", folder / "train.log", epochs.show, data, "--user-dir", PLUGIN, *recipe)
    found = {"ppl": evaluate(data, folder, "exact", flags)}
    return {**found, "words": median(epochs.speeds)} if epochs.speeds else found


def processor_seconds(process: int) -> Optional[float]:
    """Return the processor time of a process with all its threads; None outside of Linux."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system = map(int, fields[11:13])
    return (user + system) / os.sysconf("SC_CLK_TCK")


class Epochs:
    """What fairseq-train prints, cut down to a line an epoch.

    Speed is by processor time, which other work on the machine leaves alone; by the clock where
    the system does not tell a process's.

    Attributes:
        speeds: training words a second, of each epoch.
    """

    def __init__(self) -> None:
        self.speeds: List[float] = []
        self._valid: Dict[str, str] = {}
        self._updates = 0
        self._start: Optional[float] = None
        self._seconds: Optional[float] = None

    def show(self, line: str, process: int) -> Optional[str]:
        """Return what to show of a line of this process; None for nothing."""
        self._time(line, process)
        found = re.search(r"\| INFO \| (train|valid) \| (\{.*\})", line)
        if not found:
            told = re.search(r"\| (?:WARNING \| \S+|INFO \| fairseq_bnce\S*) \| (.*)", line)
            return f"  {told.group(1)}" if told else None
        stats = json.loads(found.group(2))
        if found.group(1) == "valid":
            self._valid = stats
            return None
        return self._epoch(stats)

    def _time(self, line: str, process: int) -> None:
        """Time an epoch's training, which lies between two lines."""
        if "Start iterating over samples" in line:
            self._start = processor_seconds(process)
        elif "begin validation on" in line and self._start is not None:
            self._seconds = (processor_seconds(process) or self._start) - self._start

    def _speed(self, stats: Dict[str, str]) -> float:
        updates = int(stats["train_num_updates"])
        words = float(stats["train_wpb"]) * (updates - self._updates)
        self._updates = updates
        return words / self._seconds if self._seconds else float(stats["train_wps"])

    def _epoch(self, stats: Dict[str, str]) -> str:
        self.speeds.append(self._speed(stats))
        return (
            f"  epoch {stats['epoch']:>2}: training loss {float(stats['train_loss']):6.3f}, "
            f"validation loss {float(self._valid.get('valid_loss', 'nan')):6.3f} bits, "
            f"perplexity {float(self._valid.get('valid_ppl', 'nan')):7.2f}, "
            f"{self.speeds[-1]:7,.0f} words/s"
        )


def evaluate(data: Path, folder: Path, name: str, training: List[str], *flags: str) -> float:
    """Return the perplexity of the test split in the blocks of the training, by fairseq-eval-lm."""
    arguments = ["--user-dir", PLUGIN, "--path", folder / "checkpoint_best.pt"]
    arguments += ["--gen-subset", "test", *recipes.inherited([*RECIPE, *training])]
    arguments += ["--no-progress-bar", "--num-workers", "0", *device(), *flags]
    log = folder / f"test-{name}.log"
    printed = fairseq("eval_lm", log, lambda line, process: None, data, *arguments)
    perplexity = logs.read_scoring(printed.splitlines())["ppl"]
    print(f"  test perplexity {perplexity:.2f}")
    return perplexity


def table(rows: Dict[str, Values]) -> str:
    """Return the results as text; training speed is the median over the epochs."""
    lines = [f"{'':34} {'test perplexity':>15} {'training words/s':>17}"]
    for name, values in rows.items():
        speed = f"{values['words']:,.0f}" if "words" in values else ""
        lines.append(f"{name:34} {values['ppl']:15.2f} {speed:>17}")
    return "\n".join(lines)


def notes(data: Path, folder: Path) -> str:
    """Explain the table."""
    from fairseq_bnce import checkpoints

    state = checkpoints.read(str(folder / "checkpoint_best.pt"))["task_state"]
    mean, deviation = state["mu_z"], state["sigma_z"]
    report = json.loads((data.parent / "report.json").read_text(encoding="utf-8"))
    types = report["splits"]["train"]["types"]
    return f"""
log Z_c - log Z over the validation contexts, in nats: mean mu_z {mean:.3f}, which the unnormalised
scores have taken off, standard deviation sigma_z {deviation:.3f}. So much do single scores stray
from log-probabilities: one of a very likely word may come out above 0.

Words/s are by processor time. With {types:,} types a softmax costs little; what bnce saves grows
with the vocabulary: docs/results/vocabulary.md. Everything that the commands printed is in
{shown(folder.parent)}/*/*.log."""


def next_commands(out: Path) -> str:
    """Return commands to try next, with the paths of this run."""
    command, checkpoint = shown(COMMAND), shown(out / "bnce" / "checkpoint_best.pt")
    text = shown(out / "data" / "text" / "test.txt")
    return f"""
Try next:
  {command} score --path {checkpoint} --per-word {text} | head
  {command} rescore --path {checkpoint} --weights BNCE=1 {shown(out / "nbest.txt")}
  {command} complete --path {checkpoint} {shown(out / "questions.csv")}
  {command} diagnose --path {checkpoint} {text}
  {command} prepare-text --help      # your own text
{shown(ROOT / "README.md")} has the rest. With torch 2.6 or later give fairseq's commands
  --user-dir {shown(Path(PLUGIN))}
for any model: until a plugin allows them, torch refuses all checkpoints of fairseq's."""


def some_sentences(text: Path) -> List[List[str]]:
    """Return the words of five sentences that are neither short nor long, all words known."""
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    return [words for words in sentences if 6 <= len(words) <= 12 and "<unk>" not in words][:5]


def write_nbest(sentences: Sequence[Sequence[str]], target: Path) -> None:
    """Write Moses n-best lists of three sentences: two with swapped neighbours, and itself."""
    lines = []
    for number, words in enumerate(sentences[:3]):
        for i in (1, 3):
            swapped = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
            lines.append(f"{number} ||| {' '.join(swapped)} ||| TM0= 0 ||| 0")
        lines.append(f"{number} ||| {' '.join(words)} ||| TM0= 0 ||| 0")
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_questions(sentences: Sequence[Sequence[str]], target: Path) -> None:
    """Write questions: which third word fits each sentence? The first one's is a), and so on."""
    choices = [words[2] for words in sentences]
    with target.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "question", "a)", "b)", "c)", "d)", "e)"])
        for number, words in enumerate(sentences, 1):
            table.writerow([number, " ".join([*words[:2], "_____", *words[3:]]), *choices])


def unigram_perplexity(data: Path) -> float:
    """Return the perplexity of the test split under the unigrams of the training targets."""
    from fairseq.data import Dictionary

    from fairseq_bnce.data.token_counts import count_tokens
    from fairseq_bnce.noise import NoiseDistribution

    dictionary = Dictionary.load(str(data / "dict.txt"))
    train_counts, test_counts = (
        count_tokens(str(data / split), dictionary) for split in ("train", "test")
    )
    log_q = NoiseDistribution(train_counts.tolist()).log_q.double().numpy()
    return math.exp(-float(test_counts @ log_q) / test_counts.sum())


def device() -> List[str]:
    """Return --cpu where there is no GPU, as fairseq requires."""
    import torch

    return [] if torch.cuda.is_available() else ["--cpu"]


def shown(path: Path) -> str:
    """Return a path as a user would type it here."""
    relative = os.path.relpath(str(path))
    return shlex.quote(str(path) if relative.startswith("..") else relative)


def fairseq(command: str, log: Path, show: Shown, *arguments: Any) -> str:
    """Run a command of fairseq's, all that it prints going to ``log``; return that."""
    return run([sys.executable, "-m", f"fairseq_cli.{command}", *arguments], log, show)


def run(command: List[Any], log: Path = Path(os.devnull), show: Optional[Shown] = None) -> str:
    """Show a command, run it, and show its lines by ``show``, or all; stop where it fails."""
    command = list(map(str, command))
    print(f"\n$ {' '.join(map(shlex.quote, command))}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    # PYTHONWARNINGS: fairseq's own deprecations would hide what there is to see.
    own = {"PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    variables = {**os.environ, **own, **processes.one_gpu()}
    pipes: Dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines: List[str] = []
    with log.open("w", encoding="utf-8") as copy, subprocess.Popen(
        command, env=variables, encoding="utf-8", errors="replace", **pipes
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            copy.write(line)
            text = show(line, process.pid) if show else line.rstrip("\n")
            if text is not None:
                print(text, flush=True)
    if process.returncode:
        if show:
            print(f"...\n{''.join(lines[-SHOWN_LINES:])}all of it: {shown(log)}")
        sys.exit(f"quickstart: this command failed with status {process.returncode}, see above")
    return "".join(lines)


if __name__ == "__main__":
    main()
