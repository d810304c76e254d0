"""Mnih & Teh (2012): sentence completion by log-bilinear models."""

from . import mscc
from .table import Table, row

_MODEL = "--arch lbl_lm_mscc --row-sparse"

TABLE = Table(
    title="Mnih & Teh (2012): sentence completion, log-bilinear",
    corpus=mscc.CORPUS,
    regime=mscc.REGIME,
    rows=(
        row("nce-25", "nce", f"{_MODEL} --noise-samples 25 --max-epoch 5", accuracy=54.7),
        row("bnce", "bnce", f"{_MODEL} --max-epoch 5"),
        row("bnce-1-epoch", "bnce", f"{_MODEL} --max-epoch 1"),
    ),
    columns=mscc.COLUMNS,
    about=mscc.ABOUT
    + """
The paper's 54.7 % is of 10 words of context and 300 dimensions; that it is NCE with 25 draws is
recalled, not checked, and its number of epochs is not known.""",
)
