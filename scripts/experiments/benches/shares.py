"""Batches of sentences: log q corrected by the batch's own shares of words, and not."""

import itertools
import json
import sys
from typing import Any, Dict, List

from .. import machine, processes, recipes, report
from ..workshop import Workshop

LOGGED = ("ppl", "u_ppl", "mu_z", "sigma_z")
_NO_PRIOR = 1e9  # words other than the marks have the text's shares


def measure(options: Any) -> Dict[str, Any]:
    shop = Workshop(options)
    length = ["--total-num-update", options.updates, "--max-update", options.updates]
    flags = [options.data, *recipes.words(report.load("recipes")["shares"]), *length]

    def run(seed: int, variant: str) -> Dict[str, Any]:
        name = f"{variant}-{seed}"

        def train() -> Dict[str, float]:
            out, own = shop.at("logs", f"{name}.json"), list(map(str, [*flags, "--seed", seed]))
            given = {"variant": variant, "flags": own}
            ended = processes.call(f"{__name__}.train", out, shop.threads, **given)[1]
            lines = processes.last_attempt(out.with_suffix(".log"))
            line = [line for line in lines if '"valid_ppl"' in line][-1]
            valid = json.loads(line[line.index("{") :])
            found = {name: float(valid[f"valid_{name}"]) for name in LOGGED}
            return {**found, "processor_seconds": ended.cpu_seconds}

        return {"variant": variant, "seed": seed, **shop.once(name, train)}

    return {"runs": [run(*one) for one in itertools.product(options.seeds, options.variants)]}


def train(variant: str, flags: List[str]) -> None:
    """Run fairseq-train with another correction, in a process of its own."""
    from fairseq_cli import train

    from fairseq_bnce.criterions import noise_source

    sys.argv = ["fairseq-train", *flags, "--user-dir", str(machine.PLUGIN)]
    if variant == "none":
        source: Any = noise_source.NoiseSource
        source.target_log_p = lambda own, words, *_: own.unigram.to(words.device).log_q[words]
    else:
        noise_source._PRIOR = _NO_PRIOR if variant == "marks" else float(variant)
    train.cli_main()
