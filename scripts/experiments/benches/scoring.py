"""How fast plain text is scored, and in how much memory."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any, Dict

from rendering.cells import NAMES

from .. import command, processes, report, run
from ..workshop import BLOCKS, Workshop

_COMMAND = Path(__file__).parents[2] / "fairseq-bnce"
_SCORE = "{python} {command} score {text} --path {checkpoint} --device {device} --per-word"
_EVALUATE = "fairseq-eval-lm {folder} --user-dir {plugin} --path {checkpoint} --gen-subset train"


def measure(options: Any) -> Dict[str, Any]:
    shop = Workshop(run.prepare(options))
    cpu, vocab = run.device_flags(options.device), options.vocab
    data, name = shop.corpus(vocab, options.tokens[1]), f"{vocab}-{options.tokens[1]}"
    checkpoint = shop.model(data, name, report.load("recipes")["scoring"], *cpu)
    places: Any = {"checkpoint": checkpoint, "python": sys.executable, "command": _COMMAND}
    lines = {
        "fairseq-bnce": [_SCORE],
        "fairseq-eval-lm": [_EVALUATE, BLOCKS, "--output-word-probs", *cpu],
    }

    def score(system: str, text: Path) -> processes.Ended:
        """Score a text, or what was binarised beside it, by a system such as "NAME --exact"."""
        program, *ways = system.replace(" score", "").split(" ")
        paths: Dict[str, Any] = {"text": text, "folder": text.parent, "printed": Path(os.devnull)}
        return shop.run(*lines[program], *ways, **paths, **places)

    def speed(system: str) -> Dict[str, Any]:
        """Return the times of a system for a short and a long text: the least of all repeats."""
        is_exact = system in ("fairseq-bnce score --exact", "fairseq-eval-lm")
        sizes = options.exact_tokens if is_exact else options.tokens
        texts = [shop.corpus(vocab, tokens) / "train.txt" for tokens in sizes]
        sentences = [text.read_bytes().count(b"\n") for text in texts]
        found = {"system": system, "sentences": sentences, "tokens": sizes}
        ended = [[score(system, text) for _ in range(options.repeats)] for text in texts]
        for name in ("seconds", "cpu_seconds"):
            found[name] = [min(getattr(one, name) for one in same) for same in ended]
        command.say(f"{system}: {found['seconds'][1]:.1f} s")
        return found

    def memory(count: int) -> Dict[str, float]:
        """Return peak memory and time for so many lines of three words."""
        text, whole = shop.out / f"text-{count}.txt", shop.corpus(vocab, options.tokens[0])
        read = (whole / "train.txt").read_bytes().splitlines()
        short = [b" ".join(line.split()[:3]) + b"\n" for line in read]
        text.write_bytes(b"".join(itertools.islice(itertools.cycle(short), count)))
        ended = score("fairseq-bnce score", text)
        return {"peak_mib": ended.peak_bytes / report.MIB, "seconds": ended.seconds}

    speeds = [speed(system) for system in NAMES["scorers"]]
    used = {count: memory(count) for count in options.memory_lines}
    return {"device_name": options.device_name, "speeds": speeds, "memory": used}
