"""Every table by the name that the pages' markers call it."""

from __future__ import annotations

from typing import Dict

from . import adaptive, benchmarks, comparisons, decoding
from .pages import Table

TABLES: Dict[str, Table] = {
    "ptb-perplexity": comparisons.perplexities,
    "ptb-profile": comparisons.profiles,
    "ptb-ranking": comparisons.ranking,
    "ptb-readme": comparisons.readme,
    "words-by-vocabulary": benchmarks.speeds,
    "words-by-vocabulary-exponents": benchmarks.speeds_and_exponents,
    "words-by-vocabulary-readme": benchmarks.readme,
    "processor-words-by-vocabulary": benchmarks.processor_speeds,
    "memory-of-updates": benchmarks.memory,
    "vocabulary-claims": benchmarks.claims,
    "vocabulary-batches": benchmarks.batches,
    "scoring-speed": benchmarks.scoring,
    "decoding-speed": decoding.speeds,
    "adaptive-grid": adaptive.grid,
    "adaptive-leaders": adaptive.leaders,
    "adaptive-equal-time": adaptive.equal_time,
    "adaptive-speed": adaptive.speed,
    "adaptive-readme": adaptive.overview,
    "adaptive-migration": adaptive.migration,
    "adaptive-scoring": adaptive.scoring,
}
