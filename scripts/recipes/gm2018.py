"""What the tables of Goldberger & Melamud (2018) on PTB share.

Two LSTM layers of d = 30, 100, 300, 650 after Zaremba et al. (2014): streams of 20 x 20 words
whose state is never reset, dropout 0.5, SGD at 1.0 on the sum over the 20 steps with gradients
clipped at 5 (20 and 0.25 for fairseq, whose gradient is that of the mean over words), 20 epochs,
the learning rate divided by 1.2 after the sixth.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

from .table import Columns, Row, Table, regime, row

SIZES = (30, 100, 300, 650)
CORPUS = "ptb"

REGIME = regime(
    "gm2018",
    "Goldberger & Melamud (2018) on PTB: stateful LSTM, 20 x 20, SGD, 20 epochs",
    "--stateful --tokens-per-sample 20 --batch-size 20 --batch-size-valid 20 "
    "--required-batch-size-multiple 1 --optimizer sparse_sgd --lr 20 --clip-norm 0.25 "
    "--lr-scheduler fixed --force-anneal 7 --lr-shrink 0.833333 --max-epoch 20 "
    "--no-epoch-checkpoints --log-interval 200 --num-workers 0 --cpu",
    "--stateful --batch-size 20",
)

ABOUT = """
Paper's numbers: of softmax and NCE at all sizes, and NCE-R at 650, as handed down to this project
(the paper itself was not at hand); what is not known is left out. bnce is Oualil & Klakow's and
not in the paper. DEV is Devlin et al.'s regularised softmax, NCE-R the paper's regularised NCE
(nce-r1 with alpha 1 in the place of its 10), AND Andreas & Klein's sampled regulariser; alpha and
rate in Flags. Chen et al.'s squashed scores, twice as steep at 0, do not bear this learning rate
under AND: all contexts soon have the same scores. Dropout and the learning rate are Zaremba et
al.'s (2014), recalled; the bias starts at log q, where the paper has -log V."""

# What the rows of a method are: criterion and flags.
METHODS: Dict[str, Tuple[str, str]] = {
    "softmax": ("cross_entropy", ""),
    "nce": ("nce", "--noise-samples 100 --row-sparse"),
    "bnce": ("bnce", "--row-sparse"),
    "dev": ("self_norm_softmax", "--self-norm-alpha 1"),
    "nce-r": (
        "nce_regularized",
        "--nce-base nce --noise-samples 100 --self-norm-alpha 10 --self-norm-rate 0.1",
    ),
    "nce-r1": (
        "nce_regularized",
        "--nce-base nce --noise-samples 100 --self-norm-alpha 1 --self-norm-rate 0.1",
    ),
    "and": ("self_norm_softmax", "--self-norm-alpha 1 --self-norm-rate 0.1"),
}

_PAPER: Dict[Tuple[str, int], Dict[str, float]] = {
    ("softmax", 30): {"valid_ppl": 243.4},
    ("softmax", 100): {"valid_ppl": 145.2},
    ("softmax", 300): {"valid_ppl": 97.7},
    ("softmax", 650): {"valid_ppl": 87.3},
    ("nce", 30): {"valid_ppl": 267.6},
    ("nce", 100): {"valid_ppl": 150.9},
    ("nce", 300): {"valid_ppl": 100.1},
    ("nce", 650): {"valid_ppl": 87.4, "mu_z": -0.17, "sigma_z": 0.37},
    ("nce-r", 650): {"valid_ppl": 89.8, "sigma_z": 0.17},
}


def table(what: str, methods: Sequence[str], columns: Columns, **others: Any) -> Table:
    """A table of the paper on PTB.

    Args:
        what: its number and subject.
        methods: of METHODS, for each size.
        columns: measurements.
        **others: of :class:`Table`, instead of what the tables share.
    """
    named = {"about": ABOUT, **others}
    title = f"Goldberger & Melamud (2018), {what}, PTB"
    return Table(title, CORPUS, REGIME, rows(*methods), columns, **named)


def rows(*methods: str) -> List[Row]:
    """Size by size, the methods in the order given; labels are METHOD-SIZE."""
    return [_row(method, size) for size in SIZES for method in methods]


def _row(method: str, size: int) -> Row:
    criterion, flags = METHODS[method]
    architecture = f"--arch rnn_lm_gm{size} {flags}"
    return row(f"{method}-{size}", criterion, architecture, **_PAPER.get((method, size), {}))
