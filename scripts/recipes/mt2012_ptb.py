"""Mnih & Teh (2012) on PTB: noise distribution and number of draws, log-bilinear model."""

from __future__ import annotations

from typing import List

from .table import PERPLEXITY, SPEED, SPREAD, TEST, Row, Table, regime, row

_PAPER = {
    "unigram": {1: 192.5, 5: 172.6, 25: 163.1, 100: 159.1},
    "uniform": {1: 291.0, 5: 233.7, 25: 195.1, 100: 173.2},
}


def _rows() -> List[Row]:
    ml = row("ml", "cross_entropy", "", test_ppl=163.5)
    return [ml, *(_nce(noise, draws) for noise in _PAPER for draws in _PAPER[noise])]


def _nce(noise: str, draws: int) -> Row:
    flags = f"--noise {noise} --noise-samples {draws} --row-sparse"
    return row(f"{noise}-{draws}", "nce", flags, test_ppl=_PAPER[noise][draws])


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
The paper's numbers are recalled, not checked. It trains by SGD with a schedule of its own; here it
is Adagrad, halved when validation does not improve, for at most 20 epochs.""",
)
