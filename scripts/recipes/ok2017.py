"""What the tables of Oualil & Klakow (2017) share: models, objectives, regime.

Batches of 400 words (LTCB) or 500 (OBWB), SGD halved when validation does not improve, gradients
clipped at 5, log Z = 9, unigram noise. The paper's learning rates of 0.4 and 1 are read as those of
a loss that is summed over 20 steps and averaged over the sentences, so that fairseq, which averages
over words, takes 20 times the rate and a twentieth of the clipping.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from comparison.recipes import Recipe

from .table import Row, regime, row

MODELS = ("ffnn", "rnn", "relu-rnn", "lstm", "relu-lstm")

ABOUT = """
Paper's numbers: its test perplexities, and words/s of training on one Titan X. s-nce is NCE with
draws shared by the batch. How the paper cuts its text into batches is not told: here they are
blocks of 20 words."""

LOG_Z = "--log-z 9"


def corpus_regime(name: str, corpus: str, size: int, rate: float, epochs: int) -> Recipe:
    """SGD on blocks of 20 words, halved when validation does not improve.

    Args:
        size: blocks a batch.
        rate: the paper's learning rate.
    """
    return regime(
        name,
        f"Oualil & Klakow (2017) on {corpus}: {size} x 20 words a batch, SGD",
        f"--tokens-per-sample 20 --batch-size {size} --batch-size-valid {size} "
        "--required-batch-size-multiple 1 --optimizer sparse_sgd "
        f"--lr {20 * rate:g} --clip-norm 0.25 "
        f"--lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --max-epoch {epochs} "
        "--no-epoch-checkpoints --log-interval 200",
        f"--batch-size {size}",
    )


def paper(method: str, *figures: Tuple[float, ...]) -> Dict[str, Dict[str, float]]:
    """(PPL^n, PPL^f, words/s) of each of the MODELS, or (PPL^f, words/s), by the rows' labels."""
    names = ("test_u_ppl", "test_ppl", "words_per_second")
    return {
        f"{method}-{model}": dict(zip(names[-len(known) :], known))
        for model, known in zip(MODELS, figures)
    }


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
