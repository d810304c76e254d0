"""Mnih & Teh (2012) on PTB: noise distribution and number of draws, log-bilinear model."""

from __future__ import annotations

from typing import List

from .table import PERPLEXITY, SPEED, SPREAD, TEST, Row, Table, regime, row

DRAWS = (1, 5, 25, 100)


def _rows() -> List[Row]:
    likelihood = row("ml", "cross_entropy", "")
    return [likelihood, *(_nce(noise, n) for noise in ("unigram", "uniform") for n in DRAWS)]


def _nce(noise: str, draws: int) -> Row:
    flags = f"--noise {noise} --noise-samples {draws} --row-sparse"
    return row(f"{noise}-{draws}", "nce", flags)


TABLE = Table(
    title="Mnih & Teh (2012): noise and draws, log-bilinear model of 2 words, 100-d, PTB",
    corpus="ptb",
    regime=regime(
        "mt2012-ptb",
        "Mnih & Teh (2012) on PTB: log-bilinear, 2 words, 100-d, batches of 1000 words",
        "--arch lbl_lm_ptb --tokens-per-sample 500 --batch-size 2 --batch-size-valid 4 "
        "--required-batch-size-multiple 1 --optimizer sparse_adagrad --lr 0.1 "
        "--lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --max-epoch 20 "
        "--no-epoch-checkpoints --log-interval 200 --num-workers 0 --cpu",
        "--batch-size 4",
    ),
    rows=_rows(),
    columns=(TEST, PERPLEXITY, *SPREAD, *SPEED),
    about="""
What the paper found: more draws give better models, unigram noise is better than uniform noise at
every number of draws, and the gap shrinks with them. Its figures are not at hand. Training is
Adagrad's here, halved when validation does not improve, for at most 20 epochs.""",
)
