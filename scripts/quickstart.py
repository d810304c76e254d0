#!/usr/bin/env python3
"""Train B-NCE on the English text that Python itself ships, and score with and without softmax.

The main job in small, through fairseq's own commands: text to binarised data, ``fairseq-train
--criterion bnce``, ``fairseq-eval-lm`` exactly and ``--unnormalized``, and a table of the results.

    python scripts/quickstart.py [--out FOLDER] [-- further flags of fairseq-train]
"""

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = str(ROOT / "fairseq_bnce")

RECIPE = """
  --task language_modeling --tokens-per-sample 32 --arch lstm_lm
  --decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-out-embed-dim 256 --dropout 0.5
  --criterion bnce --optimizer adam --lr 0.002 --clip-norm 1
  --batch-size 16 --required-batch-size-multiple 1 --max-epoch 10 --num-workers 0
  --no-epoch-checkpoints --no-progress-bar --log-format simple --log-interval 50
"""


def main(argv: Optional[List[str]] = None) -> None:
    """Run all steps; what is prepared already is used again, training starts afresh."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("quickstart-run"))
    parser.add_argument("flags", nargs="*", help="further flags of fairseq-train, after --")
    options = parser.parse_args(argv)
    data = prepare(options.out)
    checkpoint = train(data, options.out, options.flags)
    exact = evaluate(data, checkpoint)
    unnormalized = evaluate(data, checkpoint, "--unnormalized")
    print(table(data, checkpoint, exact, unnormalized))


def prepare(folder: Path) -> Path:
    """The binarised corpus."""
    data = folder / "data"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        script("embedded_corpus.py", folder / "corpus.txt")
        split = ["--split", "0.8", "0.1", "0.1", "--split-by", "paragraph"]
        cut = ["--lowercase", "--min-count", "2"]
        script("prepare_text.py", "--input", folder / "corpus.txt", *split, *cut, "--out", data)
    return data / "bin"


def train(data: Path, folder: Path, flags: List[str]) -> Path:
    """The best checkpoint of a fresh run."""
    checkpoints = folder / "checkpoints"
    for old in checkpoints.glob("*.pt"):
        old.unlink()
    save = ["--save-dir", checkpoints, *device()]
    fairseq("train", data, "--user-dir", PLUGIN, *RECIPE.split(), *save, *flags)
    return checkpoints / "checkpoint_best.pt"


def evaluate(data: Path, checkpoint: Path, *flags: str) -> Dict[str, float]:
    """Perplexity of the test split and tokens/s, as fairseq-eval-lm prints them."""
    arguments = ["--user-dir", PLUGIN, "--path", checkpoint, "--gen-subset", "test"]
    arguments += ["--tokens-per-sample", "32", "--no-progress-bar", "--num-workers", "0"]
    printed = fairseq("eval_lm", data, *arguments, *device(), *flags)
    return {
        "perplexity": float(re.findall(r"Perplexity: (\S+)", printed)[-1]),
        "speed": float(re.findall(r"\(([\d.]+) tokens/s\)", printed)[-1]),
    }


def table(
    data: Path, checkpoint: Path, exact: Dict[str, float], unnormalized: Dict[str, float]
) -> str:
    """The results, beside what a model without any context would reach."""
    import torch

    import fairseq_bnce  # noqa: F401 - lets torch read fairseq's checkpoints

    state = torch.load(str(checkpoint), map_location="cpu")["task_state"]
    rows = {
        "unigram distribution (sanity floor)": (unigram_perplexity(data), None),
        "bnce, exact": (exact["perplexity"], exact["speed"]),
        "bnce, unnormalised (no softmax)": (unnormalized["perplexity"], unnormalized["speed"]),
    }
    lines = ["", f"{'':36} {'test perplexity':>15} {'scoring tokens/s':>17}"]
    for name, (perplexity, speed) in rows.items():
        lines.append(f"{name:36} {perplexity:15.2f} {'' if speed is None else f'{speed:,.0f}':>17}")
    return "\n".join(
        [
            *lines,
            "",
            "log Z_c - log Z over the validation contexts, in nats: "
            f"mean mu_z {state['mu_z']:.3f}, standard deviation sigma_z {state['sigma_z']:.3f}",
            "(the unnormalised scores have mu_z taken off)",
            f"checkpoint: {checkpoint}",
        ]
    )


def unigram_perplexity(data: Path) -> float:
    """Of the test split under the unigram distribution of the training targets."""
    from fairseq.data import Dictionary

    from fairseq_bnce.noise import NoiseDistribution
    from fairseq_bnce.token_counts import count_tokens

    dictionary = Dictionary.load(str(data / "dict.txt"))
    train_counts, test_counts = (
        count_tokens(str(data / split), dictionary) for split in ("train", "test")
    )
    log_q = NoiseDistribution(train_counts).log_q.double().numpy()
    return math.exp(-float(test_counts @ log_q) / test_counts.sum())


def device() -> List[str]:
    """--cpu where there is no GPU: fairseq asks to be told."""
    import torch

    return [] if torch.cuda.is_available() else ["--cpu"]


def script(name: str, *arguments: Any) -> str:
    return show_and_run([sys.executable, str(ROOT / "scripts" / name), *map(str, arguments)])


def fairseq(command: str, *arguments: Any) -> str:
    return show_and_run([sys.executable, "-m", f"fairseq_cli.{command}", *map(str, arguments)])


def show_and_run(command: List[str]) -> str:
    """Run a command, showing it and all that it prints; stop where it fails."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    # PYTHONWARNINGS: fairseq's own deprecations would hide what there is to see.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    printed = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        for line in process.stdout:
            printed.append(line)
            print(line, end="", flush=True)
    if process.returncode:
        sys.exit(f"quickstart: this command failed with status {process.returncode}, see above")
    return "".join(printed)


if __name__ == "__main__":
    main()
