"""What the tables of Oualil & Klakow (2017) share: models, objectives, regime.

Table 1 (LTCB) and table 3 (OBWB) of the paper are the models' sizes, which
fairseq_bnce/models derives from the published parameter counts.
"""

from __future__ import annotations

from typing import Dict, List

from comparison.recipes import Recipe

from .table import Row, regime, row

MODELS = ("ffnn", "rnn", "relu-rnn", "lstm", "relu-lstm")

ABOUT = """
Paper's numbers: those handed down to this project (the paper itself was not at hand); what is not
known is left out. Words/s are the paper's on one Titan X. Regime, batch size and the number of
NCE's draws are guesses; sizes follow from the paper's parameter counts."""


def corpus_regime(name: str, corpus: str, size: int, epochs: int) -> Recipe:
    """SGD on blocks of 20 words, halved when validation does not improve.

    Args:
        size: blocks a batch.
    """
    return regime(
        name,
        f"Oualil & Klakow (2017) on {corpus}: {size} x 20 words a batch, SGD",
        f"--tokens-per-sample 20 --batch-size {size} --batch-size-valid {size} "
        "--required-batch-size-multiple 1 --optimizer sparse_sgd --lr 20 --clip-norm 0.25 "
        f"--lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --max-epoch {epochs} "
        "--no-epoch-checkpoints --log-interval 200",
        f"--batch-size {size}",
    )


def rows(corpus: str, methods: Dict[str, str], paper: Dict[str, Dict[str, float]]) -> List[Row]:
    """Model by model, the methods in their order; labels are METHOD-MODEL.

    Args:
        methods: criterion and flags, by the label's first part.
    """
    return [
        _row(f"{method}-{model}", _architecture(corpus, model), command, paper)
        for model in MODELS
        for method, command in methods.items()
    ]


def _row(label: str, architecture: str, command: str, paper: Dict[str, Dict[str, float]]) -> Row:
    criterion, _, flags = command.partition(" ")
    return row(label, criterion, f"--arch {architecture} {flags}", **paper.get(label, {}))


def _architecture(corpus: str, model: str) -> str:
    return f"ffnn_lm_{corpus}" if model == "ffnn" else f"rnn_lm_{corpus}_{model.replace('-', '_')}"
