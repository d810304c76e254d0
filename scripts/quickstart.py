#!/usr/bin/env python3
"""Train B-NCE and softmax on the English text that Python itself ships, and score with both.

The steps are fairseq's own commands: text to binarised data, ``fairseq-train --criterion bnce`` and
``cross_entropy`` by the same recipe, ``fairseq-eval-lm`` exactly and ``--unnormalized``. Each model
has the output of its commands beside it, in *.log. FOLDER/results.json has the table.

    scripts/quickstart.py [--out FOLDER] [-- further flags of fairseq-train, for both]
"""

import argparse
import csv
import json
import logging
import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import environment  # noqa: F401
from experiments import command, logs, machine, processes, recipes, report
from experiments.run import TRAIN

SCRIPTS = Path(__file__).resolve().parent
COMMAND = SCRIPTS / "fairseq-bnce"
PREPARE, RECIPE = map(recipes.words, report.load("recipes")["quickstart"].values())
Values = Dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Run all steps, and return 0. Prepared data is used again; training starts afresh."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("quickstart-run"))
    parser.add_argument("flags", nargs="*", help="further flags of fairseq-train, after --")
    options = parser.parse_args(arguments)
    logging.disable(logging.INFO)  # fairseq, once imported, logs which packages it lacks
    out = options.out.resolve()  # checkpoints remember where their data is
    data = prepare(out)
    rows = {"unigram distribution": {"ppl": unigram_perplexity(data)}}
    rows["cross_entropy (softmax)"] = train(data, out / "softmax", "cross_entropy", options.flags)
    print("\nThe training loss of bnce is that of NCE; its validation loss is the exact one.")
    rows["bnce, exact"] = train(data, out / "bnce", "bnce", options.flags)
    ppl = evaluate(data, out / "bnce", options.flags, "--unnormalized")
    rows["bnce, unnormalised (no softmax)"] = {"ppl": ppl}
    print(f"\n{table(rows)}\n{notes(out)}")
    results = json.dumps({**machine.record(), "rows": rows}, indent=1)
    (out / "results.json").write_text(results + "\n", encoding="utf-8")
    sentences = some_sentences(out / "data" / "text" / "test.txt")
    write_nbest(sentences, out / "nbest.txt")
    write_questions(sentences, out / "questions.csv")
    print(next_commands(out))
    return 0


def run(log: Path, *arguments: Any) -> None:
    """Show a command of this Python, and run it with its output in a log."""
    line = [sys.executable, *map(str, arguments)]
    print(f"\n$ {' '.join(map(shlex.quote, line))}\n  output: {shown(log)}", flush=True)
    processes.run(line, log, int(os.environ.get("OMP_NUM_THREADS", "1")))


def prepare(folder: Path) -> Path:
    """Return the folder of the binarised corpus, and make it where it is missing."""
    data, corpus = folder / "data", folder / "corpus.txt"
    if not data.exists():
        run(folder / "corpus.log", SCRIPTS / "embedded_corpus.py", corpus)
        run(folder / "prepare.log", COMMAND, *PREPARE, "--input", corpus, "--out", data)
    return data / "bin"


def train(data: Path, folder: Path, criterion: str, flags: Sequence[str]) -> Values:
    """Train afresh, and return the exact test perplexity and words a second in training."""
    for old in (*folder.glob("*.pt"), *folder.glob("*.log")):
        old.unlink()
    log, own = folder / "train.log", ["--criterion", criterion, *flags, *device()]
    places = [data, "--user-dir", machine.PLUGIN, "--save-dir", folder]
    run(log, TRAIN, *places, *RECIPE, *own)
    training = logs.read_training(log)
    for epoch, point in enumerate(training.curve, 1):
        print(f"  epoch {epoch}: validation perplexity {point['ppl']:.2f}")
    last = training.curve[-1]
    speed = last["words"] / last["processor_seconds"]
    return {"ppl": evaluate(data, folder, flags), "words": speed}


def evaluate(data: Path, folder: Path, training: Sequence[str], *flags: str) -> float:
    """Return the perplexity of the test split in the blocks of the training, by fairseq-eval-lm."""
    log = folder / f"test{''.join(flags)}.log"
    places = ["--user-dir", machine.PLUGIN, "--path", folder / "checkpoint_best.pt"]
    own = ["--no-progress-bar", "--num-workers", "0", *device(), *flags]
    blocks = recipes.inherited([*RECIPE, *training])
    run(log, "-m", "fairseq_cli.eval_lm", data, *places, "--gen-subset", "test", *blocks, *own)
    return logs.read_scoring(processes.last_attempt(log))["ppl"]


def table(rows: Dict[str, Values]) -> str:
    """Return the results as text."""
    lines = [f"{'':34} {'test perplexity':>15} {'training words/s':>17}"]
    for name, values in rows.items():
        speed = format(values["words"], ",.0f") if "words" in values else ""
        lines.append(f"{name:34} {values['ppl']:15.2f} {speed:>17}")
    return "\n".join(lines)


def notes(out: Path) -> str:
    """Explain the table."""
    from fairseq_bnce import checkpoints

    state = checkpoints.read(str(out / "bnce" / "checkpoint_best.pt"))["task_state"]
    return f"""
log Z_c - log Z over the validation contexts, in nats: mean mu_z {state["mu_z"]:.3f}, which is
subtracted from unnormalised scores; standard deviation sigma_z {state["sigma_z"]:.3f}.
Words/s are by processor time. What bnce saves grows with the vocabulary, which is small here:
docs/results/vocabulary.md."""


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
  {command} prepare-text --help      # your own text"""


def some_sentences(text: Path) -> List[List[str]]:
    """Return the words of five sentences that are neither short nor long, all words known."""
    sentences = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    return [words for words in sentences if 6 <= len(words) <= 12 and "<unk>" not in words][:5]


def write_nbest(sentences: Sequence[Sequence[str]], target: Path) -> None:
    """Write Moses n-best lists of three sentences: two with swapped neighbours, and itself."""
    with target.open("w", encoding="utf-8") as file:
        for number, words in enumerate(sentences[:3]):
            swapped = [[*words[:i], words[i + 1], words[i], *words[i + 2 :]] for i in (1, 3)]
            for text in (*swapped, words):
                print(f"{number} ||| {' '.join(text)} ||| TM0= 0 ||| 0", file=file)


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
    seen, tested = (count_tokens(str(data / one), dictionary) for one in ("train", "test"))
    log_q = NoiseDistribution(seen.tolist()).log_q.double().numpy()
    return math.exp(-float(tested @ log_q) / tested.sum())


def device() -> List[str]:
    """Return --cpu where there is no GPU, as fairseq requires."""
    import torch

    return [] if torch.cuda.is_available() else ["--cpu"]


def shown(path: Path) -> str:
    """Return a path as a user would type it here."""
    relative = os.path.relpath(path)
    return shlex.quote(str(path) if relative.startswith("..") else relative)


if __name__ == "__main__":
    command.start(main)
