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
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict

import environment  # noqa: F401
import torch
from experiments.measures import meter
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor

from fairseq_bnce import losses
from fairseq_bnce.output_layer.conversion import read_as_bands

WORDS, CUTOFFS, SIZE, FACTOR = 267_744, [20_000, 60_000], 1024, 4
CONTEXTS, ROUNDS = 256, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    features = torch.randn(CONTEXTS, SIZE)
    ways = {"bands": bands(features), "plain": plain(features)}
    rows: Dict[str, Dict[str, Any]] = {name: {"seconds": []} for name in ways}
    with torch.no_grad():
        for name, way in [*ways.items()] * ROUNDS:  # in turn, since other work disturbs
            rows[name]["seconds"].append(meter.seconds(way))
        for name, way in ways.items():
            rows[name]["peak_bytes"] = meter.peak_bytes(way, cuda=False)
            rows[name]["median"] = statistics.median(rows[name]["seconds"])
    found: Dict[str, Any] = {"words": WORDS, "cutoffs": CUTOFFS, "size": SIZE, "factor": FACTOR}
    found.update(contexts=CONTEXTS, threads=1, torch=torch.__version__, rows=rows)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def bands(features: Tensor) -> Callable[[], Tensor]:
    softmax = AdaptiveSoftmax(WORDS, SIZE, CUTOFFS, dropout=0.0, factor=FACTOR)
    model: Any = SimpleNamespace(decoder=SimpleNamespace(adaptive_softmax=softmax))
    read_as_bands(model)
    return lambda: softmax.log_partition(features, False)


def plain(features: Tensor) -> Callable[[], Tensor]:
    weight, bias = torch.randn(WORDS, SIZE) / SIZE**0.5, torch.zeros(WORDS)
    return lambda: losses.log_partition(features, weight, bias)


if __name__ == "__main__":
    main()
