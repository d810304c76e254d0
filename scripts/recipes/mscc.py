"""What the tables on the sentence-completion corpus share."""

from __future__ import annotations

from .table import PERPLEXITY, SPEED, SPREAD, regime

CORPUS = "mscc --questions QUESTIONS --answers ANSWERS"
COLUMNS = (
    ("right, exact %", "accuracy", ".1f"),
    ("unnormalised %", "u_accuracy", ".1f"),
    ("choices that differ %", "choices_that_differ", ".1f"),
    PERPLEXITY,
    *SPREAD,
    *SPEED,
    ("hours", "training_hours", ".2f"),
)
REGIME = regime(
    "mscc",
    "novels of the sentence-completion challenge: 1,600 words of single sentences a batch, Adagrad",
    "--sample-break-mode eos --tokens-per-sample 300 --max-tokens 1600 --max-tokens-valid 8000 "
    "--skip-invalid-size-inputs-valid-test "
    "--required-batch-size-multiple 1 --optimizer sparse_adagrad --lr 0.1 --clip-norm 1.0 "
    "--no-epoch-checkpoints --save-interval-updates 5000 --keep-interval-updates 1 "
    "--log-interval 200 --num-workers 0 --cpu",
    "--max-tokens 8000",
)

ABOUT = """
Sentences are trained, as the questions are scored, each for itself. Accuracy is that of
fairseq-bnce complete on the questions given, 20 % by chance; hours are those of training. Adagrad,
its learning rate and the batch are this project's choice."""
