"""Every table by the name that the pages' markers call it."""

from __future__ import annotations

from typing import Dict

from . import (
    adaptive,
    benchmarks,
    comparisons,
    corpora,
    decoding,
    frontier,
    papers,
    rescoring,
    scoring,
)
from .pages import Table

TABLES: Dict[str, Table] = {
    "ptb-perplexity": comparisons.perplexities,
    "ptb-profile": comparisons.profiles,
    "ptb-ranking": comparisons.ranking,
    "ptb-epochs": comparisons.epochs,
    "ptb-ranking-epochs": comparisons.ranking_epochs,
    "ptb-ranking-seeds": comparisons.seeds,
    "ptb-fused": comparisons.fused,
    "words-by-vocabulary": benchmarks.speeds,
    "words-by-vocabulary-exponents": benchmarks.speeds_and_exponents,
    "words-by-vocabulary-readme": benchmarks.readme,
    "processor-words-by-vocabulary": benchmarks.processor_speeds,
    "memory-of-updates": benchmarks.memory,
    "phases-of-updates": benchmarks.phases,
    "vocabulary-batches": benchmarks.batches,
    "scoring-speed": scoring.speeds,
    "scoring-memory": scoring.memory,
    "scoring-agreement": scoring.agreement,
    "scoring-printed": scoring.printed,
    "scoring-summaries": scoring.summaries,
    "diagnosis": scoring.diagnosis,
    "diagnosis-farthest": scoring.farthest,
    "offsets": scoring.offsets,
    "speech": rescoring.speech,
    "speech-unnormalised": rescoring.unnormalized,
    "corpus-splits": corpora.splits,
    "papers-ptb": papers.ptb,
    "papers-ptb-test": papers.ptb_test,
    "papers-completion": papers.completion,
    "papers-noise": papers.noise,
    "frontier": frontier.fronts,
    "decoding-speed": decoding.speeds,
    "adaptive-grid": adaptive.grid,
    "adaptive-batches": adaptive.batches,
    "adaptive-batches-readme": adaptive.best_of_batches,
    "adaptive-leaders": adaptive.leaders,
    "adaptive-equal-time": adaptive.equal_time,
    "adaptive-speed": adaptive.speed,
    "adaptive-readme": adaptive.overview,
    "adaptive-migration": adaptive.migration,
    "adaptive-scoring": adaptive.scoring,
}
