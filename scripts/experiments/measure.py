#!/usr/bin/env python3
"""Measure what fairseq does not print. Writes a JSON file:

    measure.py NAME --out FILE ...

    score       a trained model's scores and normaliser: [--exact-only], fairseq-eval-lm's arguments
    update      an update's phases and memory: [--updates N --seconds S], fairseq-train's arguments
    device      the accelerator

A command of its own, so that the experiments, whose children's peak memory is measured, import no
torch; and what is done to a process, or to the GPU, is over with it.
"""

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import List

sys.path[:0] = map(str, Path(__file__).resolve().parents[1:3])  # scripts/, and the checkout

_MODULES = {"score": "models", "update": "updates", "device": "meter"}


def main(arguments: List[str]) -> None:
    """Write what a measure finds to the file after ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("measure", choices=sorted(_MODULES))
    parser.add_argument("--out", type=Path, required=True)
    known, others = parser.parse_known_args(arguments)
    module = importlib.import_module(f"experiments.measures.{_MODULES[known.measure]}")
    found = getattr(module, known.measure)(others)
    known.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
