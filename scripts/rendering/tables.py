"""Every table by the name that the pages' markers call it."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, List

from . import adaptive, benchmarks, comparisons, decoding, papers, peers, scoring
from .cells import PROCESSOR_SPEED

_perplexities = comparisons.perplexities
TABLES: Dict[str, Callable[..., List[str]]] = {
    "ptb-perplexity": partial(_perplexities, labels=comparisons.PTB, title="criterion"),
    "ptb-ranking": partial(_perplexities, labels=comparisons.RANKING, form=".1f"),
    "optimizers": comparisons.optimizers,
    "ptb-sampled": partial(_perplexities, labels=comparisons.SAMPLED, speed=PROCESSOR_SPEED),
    "words-by-vocabulary-exponents": partial(benchmarks.by_vocabulary, has_exponents=True),
    "processor-words-by-vocabulary": partial(benchmarks.by_vocabulary, column=PROCESSOR_SPEED),
    "memory-of-updates": partial(benchmarks.by_vocabulary, column=benchmarks.MEMORY),
    "vocabulary-batches": benchmarks.batches,
    "network-100000": partial(benchmarks.network, vocab=100_000),
    "network-1000000": partial(benchmarks.network, vocab=1_000_000),
    "gpu-layer": benchmarks.gpu_layer,
    "gpu-training": benchmarks.gpu_training,
    "gpu-errors": benchmarks.gpu_errors,
    "quickstart": scoring.quickstart,
    "scoring-speed": scoring.speeds,
    "scoring-printed": scoring.printed,
    "scoring-completion": scoring.completed,
    "diagnosis": scoring.diagnosis,
    "offsets": scoring.offsets,
    "extension": scoring.extension,
    "speech": decoding.speech,
    "corpus-splits": scoring.splits,
    "papers-ptb": papers.ptb,
    "papers-ptb-seeds": papers.ptb_seeds,
    "papers-noise": papers.noise,
    "decoding-speed": decoding.speeds,
    "first-pass": decoding.first_pass,
    "adaptive-batches": adaptive.batches,
    "adaptive-leaders": adaptive.leaders,
    "adaptive-equal-time": adaptive.equal_time,
    "adaptive-speed": adaptive.speed,
    "adaptive-scoring": adaptive.scoring,
    "peers": peers.perplexities,
    "peers-costs": peers.costs,
    "peers-mixtures": peers.mixtures,
    "peers-unnormalised": partial(peers.mixtures, unnormalised=True),
}
