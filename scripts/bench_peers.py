#!/usr/bin/env python3
"""Train KenLM and faster-rnnlm on a text, for the page that compares them with fairseq's models.

    bench_peers.py TEXT --out FOLDER --kenlm BIN --faster-rnnlm PROGRAM
    bench_peers.py TEXT --out FOLDER --kenlm BIN --mix run/comparison.json

TEXT is a folder with train.txt, valid.txt and test.txt. Words that the models must not know are
<unk> there; both peers get the word UNK instead, because they skip <unk>. BIN has KenLM's lmplz,
build_binary and query. faster-rnnlm runs with one thread, until its validation after an epoch stops
it, or --seconds are over. A second call trains nothing again. --mix mixes every network of
compare.py with KenLM, word by word.

FOLDER gets peers.json: perplexities (</s> counted), processor seconds, peak memory, size on disk,
words scored a second of processor time, and how many words, or pieces of words, valid.txt has.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import Any, Dict, List, Sequence

import environment  # noqa: F401
from experiments import command, machine, mixtures, processes

SPLITS = ("train", "valid", "test")
# The shapes and rates of faster-rnnlm's own pages.
_SETTINGS = {
    "hierarchical softmax": "-hidden 200 -hidden-type sigmoid -alpha 0.1",
    "NCE": "-hidden 200 -hidden-type gru-insyn -nce 50 -alpha 0.05 -bptt 32 -bptt-skip 8",
}
_EPOCH = re.compile(r"valid:\s+([\d.]+)\s+elapsed: ([\d.]+)([smh])\+")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def main(arguments: Sequence[str]) -> int:
    parser = command.parser(__doc__)
    add = parser.add_argument
    add("text", type=Path, help="folder with train.txt, valid.txt and test.txt")
    add("--kenlm", type=Path, metavar="BIN", help="folder of its programs")
    add("--order", type=int, default=5, help="of KenLM's n-grams")
    add("--faster-rnnlm", type=Path, metavar="PROGRAM", help="its rnnlm")
    layers = "its output layer: " + ", ".join(map(repr, _SETTINGS))
    known = list(_SETTINGS)
    add("--settings", nargs="+", choices=known, default=known, metavar="NAME", help=layers)
    add("--seconds", type=int, default=600, help="for one training and its validations")
    add(
        "--pieces", type=Path, nargs="+", default=[], metavar="TEXT", help="in subwords: count them"
    )
    add("--mix", type=Path, nargs="+", default=[], metavar="JSON", help="of compare.py, with runs/")
    add("--running", action="store_true", help="mix while reading running text, too")
    options = parser.parse_args(arguments)
    if options.mix and not options.kenlm:
        parser.error("--mix: required --kenlm, got none")
    out = options.out
    texts = {split: _written(options.text / f"{split}.txt", out) for split in SPLITS}
    found: Dict[str, Any] = {"text": options.text.name, "machine": machine.record(), "systems": {}}
    folders = {"words": options.text, **{path.name: path for path in options.pieces}}
    found["tokens"] = {name: _count(path / "valid.txt") for name, path in folders.items()}
    if options.kenlm:
        found["systems"]["KenLM"] = _kenlm(options, texts)
        found["mixtures"] = _mixtures(options, texts)
    for name in options.settings if options.faster_rnnlm else []:
        found["systems"][f"faster-rnnlm, {name}"] = _faster_rnnlm(options, name, texts)
    text = json.dumps(found, indent=1)
    (out / "peers.json").write_text(f"{text}\n", encoding="utf-8")
    return 0


def _written(path: Path, out: Path) -> Path:
    """Write a text with UNK for <unk>."""
    target = out / "text" / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text(encoding="utf-8")
    target.write_text(text.replace("<unk>", "UNK"), encoding="utf-8")
    return target


def _kenlm(options: Any, texts: Dict[str, Path]) -> Dict[str, Any]:
    """Estimate an n-gram model with modified Kneser-Ney smoothing, and score with it."""
    log, arpa, binary = (options.out / f"kenlm.{end}" for end in ("log", "arpa", "bin"))
    estimate = ["-o", options.order, "-S", "4G", "-T", options.out / "kenlm-", "--text"]
    estimate = [options.kenlm / "lmplz", *estimate, texts["train"], "--arpa", arpa]
    built = [options.kenlm / "build_binary", arpa, binary]
    stored = options.out / "kenlm.json"
    if not stored.exists():
        ended = [processes.run(one, log, options.threads) for one in (estimate, built)]
        arpa.unlink()
        costs = {
            "seconds": sum(one.cpu_seconds for one in ended),
            "peak_bytes": max(one.peak_bytes for one in ended),
            "disk_bytes": binary.stat().st_size,
        }
        stored.write_text(json.dumps(costs), encoding="utf-8")
    costs = json.loads(stored.read_text(encoding="utf-8"))
    return {**costs, **_kenlm_scores(options, texts, binary)}


def _kenlm_scores(options: Any, texts: Dict[str, Path], binary: Path) -> Dict[str, float]:
    found = {}
    for split in SPLITS[1:]:
        printed = options.out / f"kenlm.{split}"
        query = [options.kenlm / "query", "-v", "summary", binary]
        # query reads standard input.
        shell = ["sh", "-c", f'"$@" < "{texts[split]}"', "query", *query]
        ended = processes.run(shell, options.out / "kenlm.log", options.threads, printed)
        text = printed.read_text(encoding="utf-8")
        found[f"{split}_ppl"] = float(re.search(r"including OOVs:\s+(\S+)", text)[1])  # type: ignore
        words = int(re.search(r"Tokens:\s+(\d+)", text)[1])  # type: ignore
        found["words_per_processor_second"] = words / ended.cpu_seconds
    return found


def _mixtures(options: Any, texts: Dict[str, Path]) -> List[Dict[str, Any]]:
    """Mix the networks of compare.py with KenLM."""
    if not options.mix:
        return []
    binary, query = options.out / "kenlm.bin", options.kenlm / "query"
    ways = list(mixtures.WAYS)[: 1 + options.running]
    own, ngrams = {}, {}
    for split in SPLITS[1:]:
        own[split], words = options.text / f"{split}.txt", options.out / f"kenlm.{split}.words"
        ngrams[split] = mixtures.ngram_scores(query, binary, texts[split], words)
    found = []
    for path in options.mix:
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"]:
            folder = path.parent / run["folder"]
            stored, checkpoint = folder / "mixed.json", folder / "checkpoints/checkpoint_last.pt"
            if not stored.exists():
                command.say(f"{path.parent.name}: {run['label']}, seed {run['seed']}")
                measured = mixtures.measure(checkpoint, own, ngrams, ways)
                stored.write_text(json.dumps(measured), encoding="utf-8")
            about = {key: run[key] for key in ("label", "seed", "updates", "processor_seconds")}
            found.append({**about, **json.loads(stored.read_text(encoding="utf-8"))})
    return found


def _faster_rnnlm(options: Any, name: str, texts: Dict[str, Path]) -> Dict[str, Any]:
    """Train a network, and score the test text with it."""
    log, model = (options.out / f"{name.replace(' ', '-')}.{end}" for end in ("log", "model"))
    program = [options.faster_rnnlm, "-rnnlm", model, "-threads", 1]
    flags = ["-train", texts["train"], "-valid", texts["valid"], *_SETTINGS[name].split()]
    if not log.exists():
        command.say(name)
        with contextlib.suppress(processes.CommandFailed):  # the time is over
            processes.run(["timeout", options.seconds, *program, *flags], log, options.threads)
    scores = [*program, "-test", texts["test"]]
    scored = processes.run(scores, log, options.threads, log.with_suffix(".scores"))
    return {
        "curve": _curve(log),
        "peak_bytes": scored.peak_bytes,
        "disk_bytes": sum(path.stat().st_size for path in model.parent.glob(f"{model.name}*")),
        "words_per_processor_second": _count(texts["test"]) / scored.cpu_seconds,
    }


def _count(path: Path) -> int:
    """Return the number of words of a text, with </s>."""
    with path.open(encoding="utf-8") as lines:
        return sum(len(line.split()) + 1 for line in lines)


def _curve(log: Path) -> List[Dict[str, float]]:
    """Return seconds of training so far and validation perplexity after each epoch."""
    text = log.read_text(encoding="utf-8", errors="replace")
    total, least, found = 0.0, math.inf, []
    for bits, seconds, unit in _EPOCH.findall(text):
        total += float(seconds) * _UNITS[unit]
        least = min(least, 2 ** float(bits))  # a worse model is rejected
        found.append({"seconds": total, "ppl": least})
    return found


if __name__ == "__main__":
    command.start(main)
