#!/usr/bin/env python3
"""Hold what fairseq-bnce scores against fairseq-eval-lm, word by word.

    score_agreement.py DATA --out FOLDER
    score_agreement.py DATA --out FOLDER --models rnn_lm mine=checkpoint_best.pt --gen-subset valid

DATA is a folder made by fairseq-preprocess --only-source. A model is an architecture, which is
trained on DATA for a few hundred updates, or NAME=CHECKPOINT. Each word of the split is scored by
fairseq-eval-lm, a sentence a sample, and by fairseq_bnce.Scorer from the same split as text,
exactly and unnormalised; fairseq prints six decimals.

FOLDER gets agreement.md and agreement.json, and models, text and logs, which a second call does not
make again.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
import json
import math
import re
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple

from experiments import machine, processes
from experiments.command import UsageError, positive

_HERE = Path(__file__).resolve().parent
_LONGEST = 400  # words of a sentence; a model takes no longer ones than it is trained for
_COMMON = f"""
  --task language_modeling --criterion bnce --noise-samples 400 --sample-break-mode eos
  --tokens-per-sample {_LONGEST} --max-tokens 1000 --optimizer adam --lr 0.002 --cpu
  --num-workers 0 --no-progress-bar --no-epoch-checkpoints --valid-partition-rate 0.1
"""
_MODELS = {
    "lstm_lm": "--decoder-layers 2 --decoder-embed-dim 100 --decoder-hidden-size 100 "
    "--decoder-out-embed-dim 100",
    "transformer_lm": "--decoder-layers 2 --decoder-embed-dim 64 --decoder-input-dim 64 "
    "--decoder-output-dim 64 --decoder-ffn-embed-dim 128 --decoder-attention-heads 4 --log-z 9",
    "rnn_lm": "--decoder-layers 2 --decoder-embed-dim 100",
    "ffnn_lm": "--decoder-embed-dim 64 --decoder-hidden-size 128 --decoder-output-dim 64",
    "lbl_lm": "--decoder-embed-dim 100",
}
_WORDS_OF_A_LINE = re.compile(r"(?:\| |eval_lm:)(\d+) (.* \[-?[\d.]+\])")
_WORD = re.compile(r"(\S+) \[(-?[\d.]+)\]")


@dataclass(frozen=True)
class Agreement:
    """Of one model, scored one way.

    Attributes:
        words: that were compared.
        perplexity: of the split, by fairseq_bnce.
        difference: the largest of any word, in nats.
    """

    words: int
    perplexity: float
    difference: float


class Disagreement(RuntimeError):
    """The two did not score the same words."""


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, 1 if other words were scored, 2 for what can't be done, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        machine.check_fairseq()
        machine.check_data(options.data)
        sys.path.insert(0, str(machine.plugin_folder().parent))
        models = dict(map(_named, options.models))
        if len(models) < len(options.models):
            raise UsageError(f"--models: required each name once, got {' '.join(options.models)}")
        options.out.mkdir(parents=True, exist_ok=True)
        found = {name: _both_ways(name, path, options) for name, path in models.items()}
        _write(found, options)
    except (UsageError, processes.CommandFailed) as error:
        print(f"score_agreement.py: error: {error}", file=sys.stderr)
        return 2
    except Disagreement as error:
        print(f"score_agreement.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def eval_lm_scores(output: str) -> List[Tuple[str, float]]:
    """(word, log-probability) of --output-word-probs, in the order of the data."""
    lines = sorted((int(number), line) for number, line in _WORDS_OF_A_LINE.findall(output))
    return [(word, float(score)) for _, line in lines for word, score in _WORD.findall(line)]


def agreement(
    want: Sequence[Tuple[str, float]], got: Sequence[Tuple[str, float]], what: str
) -> Agreement:
    """Of two lists of (word, log-probability).

    Raises:
        Disagreement: where these are not the same words, or there are none.
    """
    if [word for word, _ in want] != [word for word, _ in got] or not want:
        raise Disagreement(
            f"{what}: fairseq-eval-lm scored {len(want)} words, we {len(got)} others"
        )
    difference = max(abs(a - b) for (_, a), (_, b) in zip(want, got))
    perplexity = math.exp(-sum(score for _, score in got) / len(got))
    return Agreement(len(got), perplexity, difference)


def _both_ways(name: str, given: str, options: argparse.Namespace) -> Dict[str, Agreement]:
    checkpoint = Path(given) if given else _trained(name, options)
    found = {}
    for way, flags in (("exact", []), ("unnormalised", ["--unnormalized"])):
        want = eval_lm_scores(_eval_lm(checkpoint, options, flags))
        got = list(_our_scores(checkpoint, options, exact=way == "exact"))
        found[way] = agreement(want, got, f"{name}, {way}")
        print(f"{name}, {way}: {found[way]}", file=sys.stderr, flush=True)
    return found


def _trained(name: str, options: argparse.Namespace) -> Path:
    checkpoint = options.out / name / "checkpoint_last.pt"
    if not checkpoint.is_file():
        command = [*_fairseq("train", options.data), "--save-dir", str(checkpoint.parent)]
        command += ["--arch", name, *shlex.split(_COMMON), *shlex.split(_MODELS[name])]
        command += ["--max-update", str(options.updates)]
        processes.run(command, options.out / "train.log", options.threads)
    return checkpoint


def _eval_lm(checkpoint: Path, options: argparse.Namespace, flags: List[str]) -> str:
    command = [*_fairseq("eval_lm", options.data), "--path", str(checkpoint), *flags]
    command += ["--gen-subset", options.gen_subset, "--sample-break-mode", "eos"]
    command += ["--tokens-per-sample", str(_LONGEST), "--max-tokens", "4000", "--cpu"]
    command += ["--output-word-probs", "--no-progress-bar", "--num-workers", "0"]
    log = options.out / "eval_lm.log"
    processes.run(command, log, options.threads)
    return "\n".join(processes.last_attempt(log))


def _our_scores(
    checkpoint: Path, options: argparse.Namespace, exact: bool
) -> Iterable[Tuple[str, float]]:
    from fairseq_bnce import Scorer  # late, since it takes seconds: first what was asked

    scorer = Scorer.from_checkpoint(str(checkpoint), exact=exact)
    unk = scorer.dictionary.unk_word
    with _text(options).open(encoding="utf-8") as lines:
        for line in scorer.score_stream(lines):
            words = (unk if oov else word for word, oov in zip(line.words, line.is_oov))
            yield from zip(words, line.log_probs.tolist())


def _text(options: argparse.Namespace) -> Path:
    text = options.out / f"{options.gen_subset}.txt"
    if not text.is_file():
        command = [sys.executable, str(_HERE / "experiments" / "as_text.py"), str(options.data)]
        command += [options.gen_subset, str(text)]
        processes.run(command, options.out / "text.log", options.threads)
    return text


def _fairseq(command: str, data: Path) -> List[str]:
    plugin = str(machine.plugin_folder())
    return [sys.executable, "-m", f"fairseq_cli.{command}", str(data), "--user-dir", plugin]


def _named(model: str) -> Tuple[str, str]:
    """(name, checkpoint or nothing)"""
    name, given, path = model.partition("=")
    if not given and name not in _MODELS:
        known = ", ".join(_MODELS)
        raise UsageError(f"--models: required NAME=CHECKPOINT or one of {known}, got {name!r}")
    if given and not Path(path).is_file():
        raise UsageError(f"--models: required a checkpoint, got {path!r}, which is no file")
    return name, path


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", type=Path, help="folder made by fairseq-preprocess --only-source")
    add("--out", type=Path, required=True, help="folder for results, models and logs")
    add("--models", nargs="+", default=list(_MODELS), metavar="MODEL", help="default: %(default)s")
    add("--gen-subset", default="test", help="split to score (default: %(default)s)")
    add("--updates", type=positive, default=300, help="of a training (default: %(default)s)")
    add("--threads", type=positive, default=1, help="OMP_NUM_THREADS (default: 1)")
    return parser


def _write(found: Dict[str, Dict[str, Agreement]], options: argparse.Namespace) -> None:
    versions = machine.versions()
    lines = [
        "| | words | perplexity, exact | largest difference, exact | unnormalised |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, ways in found.items():
        exact, unnormalised = ways["exact"], ways["unnormalised"]
        lines.append(
            f"| `{name}` | {exact.words:,} | {exact.perplexity:.2f} | {exact.difference:.1e} "
            f"| {unnormalised.difference:.1e} |"
        )
    text = "\n".join([", ".join(f"{k} {v}" for k, v in versions.items()), "", *lines]) + "\n"
    (options.out / "agreement.md").write_text(text, encoding="utf-8")
    models = {name: {way: asdict(one) for way, one in ways.items()} for name, ways in found.items()}
    content = {"versions": versions, "data": machine.data_fingerprint(options.data)}
    content["models"] = models
    target = options.out / "agreement.json"
    target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
