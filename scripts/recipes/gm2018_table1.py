"""Goldberger & Melamud (2018), table 1: NCE and softmax, on PTB."""

from .gm2018 import table
from .table import PERPLEXITY, SPEED, SPREAD

TABLE = table("table 1: NCE and softmax", ("softmax", "nce", "bnce"), (PERPLEXITY, *SPREAD, *SPEED))
