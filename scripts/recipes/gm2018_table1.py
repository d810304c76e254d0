"""Goldberger & Melamud (2018), table 1: NCE and softmax, on PTB."""

from . import gm2018
from .table import PERPLEXITY, SPEED, SPREAD, Table

TABLE = Table(
    title="Goldberger & Melamud (2018), table 1: NCE and softmax, PTB",
    corpus=gm2018.CORPUS,
    regime=gm2018.REGIME,
    rows=gm2018.rows("softmax", "nce", "bnce"),
    columns=(PERPLEXITY, *SPREAD, SPEED),
    about=gm2018.ABOUT,
)
