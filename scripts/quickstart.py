#!/usr/bin/env python3
"""Train B-NCE and softmax on the English text that Python itself ships, and score with both.

The main job in small, through fairseq's own commands: text to binarised data, ``fairseq-train
--criterion bnce`` and ``cross_entropy`` by the same recipe, ``fairseq-eval-lm`` exactly and
``--unnormalized``, and a table of the results. What the commands print is in a log beside each
model; shown is what matters of it. The table is also in FOLDER/results.json.

    scripts/quickstart.py [--out FOLDER] [--no-softmax] [-- further flags of fairseq-train]
"""

if __name__ == "__main__":
    import environment

    environment.enter()

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
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from experiments import logs, machine, processes, recipes, tables

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = str(ROOT / "fairseq_bnce")
COMMAND = ROOT / "scripts" / "fairseq-bnce"

RECIPE = recipes.words(tables.load("recipes")["quickstart"])
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
    write_results(rows, out / "results.json")
    sentences = some_sentences(out / "data" / "text" / "test.txt")
    write_nbest(sentences, out / "nbest.txt")
    write_questions(sentences, out / "questions.csv")
    print(next_commands(out))


def choose_threads() -> None:
    """One thread, unless the user has set a number: see what is printed."""
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        print(
            "With one thread (OMP_NUM_THREADS=1): models this small gain little from more, which\n"
            "wait for each other on a machine that is busy. Set OMP_NUM_THREADS to have others."
        )


def prepare(folder: Path) -> Path:
    """The binarised corpus."""
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
    """The flags that cross_entropy knows, too: those of the user's less those of bnce's own."""
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
    """What a process has used, threads and all; None where the system does not say (no Linux)."""
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
        """What to show of a line of this process; None: nothing."""
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
        """An epoch's training lies between two lines."""
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
    """Perplexity of the test split in the blocks of the training, by fairseq-eval-lm."""
    arguments = ["--user-dir", PLUGIN, "--path", folder / "checkpoint_best.pt"]
    arguments += ["--gen-subset", "test", *recipes.inherited([*RECIPE, *training])]
    arguments += ["--no-progress-bar", "--num-workers", "0", *device(), *flags]
    printed = fairseq("eval_lm", folder / f"test-{name}.log", silent, data, *arguments)
    perplexity = logs.read_scoring(printed.splitlines())["ppl"]
    print(f"  test perplexity {perplexity:.2f}")
    return perplexity


def table(rows: Dict[str, Values]) -> str:
    """The results; training speed, in processor time, is the median over the epochs."""
    lines = [f"{'':34} {'test perplexity':>15} {'training words/s':>17}"]
    for name, values in rows.items():
        speed = f"{values['words']:,.0f}" if "words" in values else ""
        lines.append(f"{name:34} {values['ppl']:15.2f} {speed:>17}")
    return "\n".join(lines)


def write_results(rows: Dict[str, Values], target: Path) -> None:
    """The table, and where it was made."""
    found = {**machine.record(), "rows": rows}
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def notes(data: Path, folder: Path) -> str:
    """What the table does not say of itself."""
    mean, deviation = normaliser(folder / "checkpoint_best.pt")
    report = json.loads((data.parent / "report.json").read_text(encoding="utf-8"))
    types = report["splits"]["train"]["types"]
    return f"""
log Z_c - log Z over the validation contexts, in nats: mean mu_z {mean:.3f}, which the unnormalised
scores have taken off, standard deviation sigma_z {deviation:.3f}. So much do single scores stray
from log-probabilities: one of a very likely word may come out above 0.

Words/s are by processor time. With {types:,} types a softmax costs little; what bnce saves grows
with the vocabulary: docs/vocabulary.md. Everything that the commands printed is in
{shown(folder.parent)}/*/*.log."""


def normaliser(checkpoint: Path) -> Tuple[float, float]:
    """(mu_z, sigma_z) of a checkpoint, nats."""
    from fairseq_bnce import checkpoints

    state = checkpoints.read(str(checkpoint))["task_state"]
    return state["mu_z"], state["sigma_z"]


def next_commands(out: Path) -> str:
    """What to try now, with the paths of this run."""
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
    """The words of five that are neither short nor long, all of them known."""
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    return [words for words in sentences if 6 <= len(words) <= 12 and "<unk>" not in words][:5]


def write_nbest(sentences: Sequence[Sequence[str]], target: Path) -> None:
    """A Moses n-best list: of each of three sentences, two with neighbours changed, and itself."""
    lines = []
    for number, words in enumerate(sentences[:3]):
        for i in (1, 3):
            swapped = [*words[:i], words[i + 1], words[i], *words[i + 2 :]]
            lines.append(f"{number} ||| {' '.join(swapped)} ||| TM0= 0 ||| 0")
        lines.append(f"{number} ||| {' '.join(words)} ||| TM0= 0 ||| 0")
    target.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_questions(sentences: Sequence[Sequence[str]], target: Path) -> None:
    """Which of the sentences' third words fits each of them: the first one's is a), and so on."""
    choices = [words[2] for words in sentences]
    with target.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "question", "a)", "b)", "c)", "d)", "e)"])
        for number, words in enumerate(sentences, 1):
            table.writerow([number, " ".join([*words[:2], "_____", *words[3:]]), *choices])


def unigram_perplexity(data: Path) -> float:
    """Of the test split under the unigram distribution of the training targets."""
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
    """--cpu where there is no GPU: fairseq asks to be told."""
    import torch

    return [] if torch.cuda.is_available() else ["--cpu"]


def shown(path: Path) -> str:
    """A path as it is typed here."""
    relative = os.path.relpath(str(path))
    return shlex.quote(str(path) if relative.startswith("..") else relative)


def silent(_: str, __: int) -> None:
    """Show nothing of a line."""


def everything(line: str, _: int) -> str:
    """Show a line as it is."""
    return line.rstrip("\n")


def fairseq(command: str, log: Path, show: Shown, *arguments: Any) -> str:
    """Run a command of fairseq's, all that it prints going to ``log``; return that."""
    return run([sys.executable, "-m", f"fairseq_cli.{command}", *arguments], log, show)


def run(
    command: List[Any],
    log: Path = Path(os.devnull),
    show: Shown = everything,
) -> str:
    """Show a command, run it, show what is to be seen of its lines; stop where it fails."""
    command = list(map(str, command))
    print(f"\n$ {' '.join(map(shlex.quote, command))}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    # PYTHONWARNINGS: fairseq's own deprecations would hide what there is to see.
    own = {"PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    environment = {**os.environ, **own, **processes.one_gpu()}
    pipes: Dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines: List[str] = []
    with log.open("w", encoding="utf-8") as copy, subprocess.Popen(
        command, env=environment, encoding="utf-8", errors="replace", **pipes
    ) as process:
        for line in process.stdout or ():
            lines.append(line)
            copy.write(line)
            text = show(line, process.pid)
            if text is not None:
                print(text, flush=True)
    if process.returncode:
        _fail(process.returncode, lines, log, show)
    return "".join(lines)


def _fail(status: int, lines: List[str], log: Path, show: Callable) -> None:
    if show is not everything:
        print(f"...\n{''.join(lines[-SHOWN_LINES:])}all of it: {shown(log)}")
    sys.exit(f"quickstart: this command failed with status {status}, see above")


if __name__ == "__main__":
    main()
