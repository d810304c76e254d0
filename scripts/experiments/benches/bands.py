"""Time and memory of the exact log Z_c by bands, beside a plain output layer of full size."""

import statistics
from types import SimpleNamespace
from typing import Any, Callable, Dict

import torch
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor

from experiments.measures import meter
from fairseq_bnce import losses
from fairseq_bnce.output_layer.conversion import read_as_bands

WORDS, CUTOFFS, SIZE, FACTOR = 267_744, [20_000, 60_000], 1024, 4
CONTEXTS, ROUNDS = 256, 5


def measure(options: Any) -> Dict[str, Any]:
    torch.set_num_threads(options.threads)
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
    found = {"words": WORDS, "cutoffs": CUTOFFS, "size": SIZE, "factor": FACTOR}
    return {**found, "contexts": CONTEXTS, "rows": rows}


def bands(features: Tensor) -> Callable[[], Tensor]:
    softmax = AdaptiveSoftmax(WORDS, SIZE, CUTOFFS, dropout=0.0, factor=FACTOR)
    model: Any = SimpleNamespace(decoder=SimpleNamespace(adaptive_softmax=softmax))
    read_as_bands(model)
    return lambda: softmax.log_partition(features, False)


def plain(features: Tensor) -> Callable[[], Tensor]:
    weight, bias = torch.randn(WORDS, SIZE) / SIZE**0.5, torch.zeros(WORDS)
    return lambda: losses.log_partition(features, weight, bias)
