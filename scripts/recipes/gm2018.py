"""What the tables of Goldberger & Melamud (2018) on PTB share.

Two LSTM layers of d = 30, 100, 300, 650: streams of 20 x 20 words whose state is never reset,
dropout 0.5, SGD at 1 on the sum over the 20 steps with gradients clipped at 5 (20 and 0.25 for
fairseq, whose gradient is that of the mean over words), 20 epochs, the learning rate divided by
1.2 after every epoch from the sixth on. The output bias starts at -log V.
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
Paper's numbers: tables 1 to 5 of the paper; what it does not report is left out. bnce is Oualil &
Klakow's and not in the paper. DEV is Devlin et al.'s regularised softmax with alpha 1 (dev0.1 and
dev10: 0.1 and 10). NCE-R is the paper's regularised NCE with alpha 1 of its eq. 10, which divides
the penalty by gamma. The paper's own alpha of 10 stands beside it, and its 100 beside nce-r10: its
sigma_z at alpha is DEV's at alpha / 10, so that its table seems not to divide. AND is Andreas &
Klein's sampled regulariser, alpha 1, whose sigma_z is DEV's at the same alpha. Chen et al.'s
squashed scores, twice as steep at 0, do not bear this learning rate under AND: all contexts soon
have the same scores."""

_BIAS = "--init-output-bias uniform"
_NCE_R = f"--nce-base nce --noise-samples 100 --self-norm-rate 0.1 {_BIAS}"

# What the rows of a method are: criterion and flags.
METHODS: Dict[str, Tuple[str, str]] = {
    "softmax": ("cross_entropy", ""),
    "nce": ("nce", f"--noise-samples 100 --row-sparse {_BIAS}"),
    "bnce": ("bnce", f"--row-sparse {_BIAS}"),
    "dev0.1": ("self_norm_softmax", f"--self-norm-alpha 0.1 {_BIAS}"),
    "dev": ("self_norm_softmax", f"--self-norm-alpha 1 {_BIAS}"),
    "dev10": ("self_norm_softmax", f"--self-norm-alpha 10 {_BIAS}"),
    "nce-r": ("nce_regularized", f"{_NCE_R} --self-norm-alpha 1"),
    "nce-r10": ("nce_regularized", f"{_NCE_R} --self-norm-alpha 10"),
    "and": ("self_norm_softmax", f"--self-norm-alpha 1 --self-norm-rate 0.1 {_BIAS}"),
}

# (mu_z, sigma_z, perplexity) on the validation data, by d: tables 1 to 3.
_VALID: Dict[str, Dict[int, Tuple[float, float, float]]] = {
    "softmax": {
        30: (2.29, 0.97, 243.4),
        100: (3.03, 1.52, 145.2),
        300: (3.77, 1.98, 97.7),
        650: (4.36, 2.31, 87.3),
    },
    "nce": {
        30: (-0.18, 0.11, 267.6),
        100: (-0.19, 0.17, 150.9),
        300: (-0.15, 0.29, 100.1),
        650: (-0.17, 0.37, 87.4),
    },
    "dev0.1": {
        30: (-0.12, 0.21, 242.6),
        100: (-0.10, 0.28, 143.3),
        300: (-0.09, 0.36, 96.3),
        650: (-0.14, 0.43, 85.0),
    },
    "dev": {
        30: (-0.16, 0.09, 250.9),
        100: (-0.17, 0.11, 149.5),
        300: (-0.14, 0.14, 100.8),
        650: (-0.17, 0.18, 86.3),
    },
    "dev10": {
        30: (-0.13, 0.060, 307.2),
        100: (-0.12, 0.058, 182.0),
        300: (-0.16, 0.054, 121.3),
        650: (-0.11, 0.071, 99.5),
    },
    "nce-r": {650: (-0.19, 0.17, 89.8)},
    "nce-r10": {650: (-0.089, 0.086, 112.6)},
    "and": {650: (0.45, 0.25, 119.4)},
}
# (perplexity, unnormalised perplexity after the shift) on the test data, d = 650: table 4.
_TEST: Dict[str, Tuple[float, float]] = {
    "dev": (83.1, 83.0),
    "nce-r": (85.9, 86.0),
    "nce": (83.7, 83.4),
    "and": (114.9, 115.0),
}
# Correlation of entropy and log Z_c on the validation data: table 5.
_CORRELATION: Dict[str, Dict[int, float]] = {
    "nce": {30: -0.33, 100: -0.29, 300: -0.46, 650: -0.50},
    "dev": {30: -0.27, 100: -0.29, 300: -0.41, 650: -0.45},
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
    return row(f"{method}-{size}", criterion, architecture, **_paper(method, size))


def _paper(method: str, size: int) -> Dict[str, float]:
    """What the paper reports of this system."""
    known: Dict[str, float] = {}
    if size in _VALID.get(method, {}):
        known.update(zip(("mu_z", "sigma_z", "valid_ppl"), _VALID[method][size]))
    if size == 650 and method in _TEST:
        known.update(zip(("test_ppl", "test_u_ppl_shifted"), _TEST[method]))
    if size in _CORRELATION.get(method, {}):
        known["entropy_correlation"] = _CORRELATION[method][size]
    return known
