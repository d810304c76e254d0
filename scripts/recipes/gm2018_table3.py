"""Goldberger & Melamud (2018), table 3: NCE-R and AND beside NCE and DEV, on PTB."""

from . import gm2018
from .table import PERPLEXITY, SPEED, SPREAD, Table

TABLE = Table(
    title="Goldberger & Melamud (2018), table 3: NCE-R and AND beside NCE and DEV, PTB",
    corpus=gm2018.CORPUS,
    regime=gm2018.REGIME,
    rows=gm2018.rows("nce", "dev", "nce-r", "and"),
    columns=(PERPLEXITY, *SPREAD, SPEED),
    about=gm2018.ABOUT,
)
