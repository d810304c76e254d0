"""Mnih & Teh (2012): sentence completion by log-bilinear models."""

from . import mscc
from .table import Table, row

_MODEL = "--arch lbl_lm_mscc --row-sparse"

TABLE = Table(
    title="Mnih & Teh (2012): sentence completion, log-bilinear",
    corpus=mscc.CORPUS,
    regime=mscc.REGIME,
    rows=(
        row("nce-25", "nce", f"{_MODEL} --noise-samples 25 --max-epoch 5"),
        row("bnce", "bnce", f"{_MODEL} --max-epoch 5"),
        row("bnce-1-epoch", "bnce", f"{_MODEL} --max-epoch 1"),
    ),
    columns=mscc.COLUMNS,
    about=mscc.ABOUT
    + """
After the paper's log-bilinear models of this task; it is not at hand with its figures, so that none
stands beside ours.""",
)
