"""Goldberger & Melamud (2018), table 3: NCE-R and AND beside NCE and DEV, on PTB."""

from .gm2018 import table
from .table import PERPLEXITY, SPEED, SPREAD

TABLE = table(
    "table 3: NCE-R and AND beside NCE and DEV",
    ("nce", "dev", "nce-r", "nce-r10", "and"),
    (PERPLEXITY, *SPREAD, *SPEED),
)
