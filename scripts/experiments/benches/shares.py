"""Batches of sentences: log q corrected by the batch's own shares of words, and not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Dict, List

from .. import command, processes, recipes, report

LOGGED = ("ppl", "u_ppl", "mu_z", "sigma_z")
_NO_PRIOR = 1e9  # words other than the marks have the text's shares


def measure(options: Any) -> Dict[str, Any]:
    seeds, variants = options.seeds, options.variants
    return {"runs": [_run(options, one, seed) for seed in seeds for one in variants]}


def _run(options: Any, variant: str, seed: int) -> Dict[str, Any]:
    stored = options.out / f"{variant}-{seed}.json"
    if not stored.exists():
        log = stored.with_suffix(".log")
        length = ["--total-num-update", options.updates, "--max-update", options.updates]
        flags: List[Any] = [*recipes.words([report.load("recipes")["shares"]]), *length]
        command.say(f"{variant}, seed {seed}")
        program = [sys.executable, "-m", __name__, variant, options.data]
        ended = processes.run([*program, *flags, "--seed", seed], log, options.threads)
        line = [line for line in processes.last_attempt(log) if '"valid_ppl"' in line][-1]
        valid = json.loads(line[line.index("{") :])
        found = {name: float(valid[f"valid_{name}"]) for name in LOGGED}
        text = json.dumps({**found, "processor_seconds": ended.cpu_seconds})
        stored.write_text(text, encoding="utf-8")
    found = json.loads(stored.read_text(encoding="utf-8"))
    return {"variant": variant, "seed": seed, **found}


def _train(variant: str, *flags: str) -> None:
    from fairseq_cli import train

    from fairseq_bnce.criterions import noise_source

    package = Path(noise_source.__file__).parents[1]
    sys.argv = ["fairseq-train", *flags, "--user-dir", str(package)]
    if variant == "none":
        source: Any = noise_source.NoiseSource
        source.target_log_p = lambda own, words, *_: own.unigram.to(words.device).log_q[words]
    else:
        noise_source._PRIOR = _NO_PRIOR if variant == "marks" else float(variant)
    train.cli_main()


if __name__ == "__main__":
    _train(*sys.argv[1:])
