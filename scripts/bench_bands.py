#!/usr/bin/env python3
"""Time and memory of the exact log Z_c by bands, beside a plain output layer of full size.

    bench_bands.py --out docs/results/bands/partition.json

The sizes are those of fairseq's transformer_lm_wiki103. The work by bands is the sum of V_k d_k,
the work of a plain layer V D.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import environment  # noqa: F401
import torch
from experiments.measures import meter
from torch import Tensor

WORDS, CUTOFFS, SIZE, FACTOR = 267_744, [20_000, 60_000], 1024, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--contexts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--words", type=int, default=WORDS, help="smaller in a trial")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    cutoffs = [cutoff * options.words // WORDS for cutoff in CUTOFFS]
    features = torch.randn(options.contexts, SIZE)
    ways = {"bands": bands(options.words, cutoffs), "plain": plain(options.words)}
    rows: Dict[str, Dict[str, Any]] = {name: {"seconds": []} for name in ways}
    with torch.no_grad():
        for _ in range(options.rounds):  # in turn, since other work disturbs
            for name, way in ways.items():
                rows[name]["seconds"].append(meter.seconds(partial(way, features)))
        for name, way in ways.items():
            rows[name]["peak_bytes"] = meter.peak_bytes(partial(way, features), cuda=False)
            rows[name]["median"] = statistics.median(rows[name]["seconds"])
    ends = [0, *cutoffs, options.words]
    work = sum((b - a) * SIZE // FACTOR**k for k, (a, b) in enumerate(zip(ends, ends[1:])))
    found = {
        **{"words": options.words, "cutoffs": cutoffs, "size": SIZE, "factor": FACTOR},
        **{"contexts": options.contexts, "threads": 1, "torch": torch.__version__},
        "numbers": {"bands": work, "plain": options.words * SIZE},
        "rows": rows,
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    time = rows["plain"]["median"] / rows["bands"]["median"]
    print(f"plain over bands: parameters {options.words * SIZE / work:.2f}, seconds {time:.2f}")


def bands(words: int, cutoffs: List[int]) -> Callable[[Tensor], Tensor]:
    from fairseq.modules import AdaptiveSoftmax

    from fairseq_bnce.output_layer.bands import read_as_bands

    softmax = AdaptiveSoftmax(words, SIZE, cutoffs, dropout=0.0, factor=FACTOR)
    model: Any = SimpleNamespace(decoder=SimpleNamespace(adaptive_softmax=softmax))
    read_as_bands(model)
    return lambda features: softmax.log_partition(features, False)


def plain(words: int) -> Callable[[Tensor], Tensor]:
    from fairseq_bnce import losses

    weight, bias = torch.randn(words, SIZE) / SIZE**0.5, torch.zeros(words)
    return lambda features: losses.log_partition(features, weight, bias)


if __name__ == "__main__":
    main()
