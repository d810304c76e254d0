"""Every table by the name that the pages' markers call it."""

from __future__ import annotations

from functools import partial
from typing import Callable, Dict, List

from . import adaptive, benchmarks, comparisons, frontier, papers, scoring, speech

TABLES: Dict[str, Callable[..., List[str]]] = {
    "ptb-perplexity": comparisons.perplexities,
    "ptb-profile": comparisons.profiles,
    "ptb-ranking": comparisons.ranking,
    "ptb-epochs": comparisons.epochs,
    "ptb-ranking-epochs": partial(comparisons.epochs, labels=comparisons.RANKING),
    "ptb-ranking-seeds": comparisons.seeds,
    "ptb-sampled": comparisons.sampled,
    "ptb-sampled-epochs": partial(comparisons.epochs, labels=comparisons.SAMPLED),
    "ptb-fused": comparisons.fused,
    "words-by-vocabulary": benchmarks.by_vocabulary,
    "words-by-vocabulary-exponents": partial(benchmarks.by_vocabulary, has_exponents=True),
    "processor-words-by-vocabulary": partial(
        benchmarks.by_vocabulary, title="words/processor s", measure="words_per_processor_second"
    ),
    "memory-of-updates": partial(
        benchmarks.by_vocabulary, title="MiB", measure="update_mib", form=",.1f"
    ),
    "phases-of-updates": benchmarks.phases,
    "vocabulary-batches": benchmarks.batches,
    "gpu-layer": benchmarks.gpu_layer,
    "gpu-training": benchmarks.gpu_training,
    "gpu-errors": benchmarks.gpu_errors,
    "quickstart": scoring.quickstart,
    "scoring-speed": scoring.speeds,
    "scoring-memory": scoring.memory,
    "scoring-agreement": scoring.agreement,
    "scoring-printed": scoring.printed,
    "scoring-completion": scoring.completed,
    "scoring-summaries": scoring.summaries,
    "diagnosis": scoring.diagnosis,
    "diagnosis-farthest": scoring.farthest,
    "offsets": scoring.offsets,
    "speech": speech.rescoring,
    "speech-unnormalised": speech.unnormalized,
    "speech-ways": speech.ways,
    "corpus-splits": scoring.splits,
    "papers-ptb": papers.ptb,
    "papers-ptb-test": papers.ptb_test,
    "papers-ptb-seeds": papers.ptb_seeds,
    "papers-completion": papers.completion,
    "papers-noise": papers.noise,
    "frontier": frontier.fronts,
    "decoding-speed": speech.speeds,
    "first-pass": speech.first_pass,
    "first-pass-acoustics": speech.acoustics,
    "adaptive-grid": adaptive.grid,
    "adaptive-batches": adaptive.batches,
    "adaptive-leaders": adaptive.leaders,
    "adaptive-equal-time": adaptive.equal_time,
    "adaptive-speed": adaptive.speed,
    "adaptive-scoring": adaptive.scoring,
}
