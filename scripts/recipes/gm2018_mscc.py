"""Goldberger & Melamud (2018): sentence completion by LSTMs, normalised and not."""

from . import mscc
from .table import Table, row

TABLE = Table(
    title="Goldberger & Melamud (2018): sentence completion, LSTM",
    corpus=mscc.CORPUS,
    regime=mscc.REGIME,
    rows=(
        row(
            "nce-650",
            "nce",
            "--arch rnn_lm_gm650 --noise-samples 100 --row-sparse --max-epoch 5",
            accuracy=51.6,
            u_accuracy=52.7,
            sigma_z=0.14,
        ),
        row("bnce-650", "bnce", "--arch rnn_lm_gm650 --row-sparse --max-epoch 5"),
        row(
            "bnce-200",
            "bnce",
            "--arch rnn_lm --decoder-layers 2 --decoder-embed-dim 200 --decoder-hidden-size 200 "
            "--row-sparse --max-epoch 1",
        ),
    ),
    columns=mscc.COLUMNS,
    about=mscc.ABOUT
    + """
The paper's (table 6) has 2 x 650 units, trained by NCE for 5 epochs. bnce-200 is a small one for
one CPU core, one epoch.""",
)
