"""Goldberger & Melamud (2018), table 2: DEV beside NCE, on PTB."""

from . import gm2018
from .table import PERPLEXITY, SPEED, SPREAD, Table

TABLE = Table(
    title="Goldberger & Melamud (2018), table 2: DEV beside NCE, PTB",
    corpus=gm2018.CORPUS,
    regime=gm2018.REGIME,
    rows=gm2018.rows("nce", "bnce", "dev"),
    columns=(PERPLEXITY, *SPREAD, SPEED),
    about=gm2018.ABOUT,
)
