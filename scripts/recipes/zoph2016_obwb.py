"""Zoph et al. (2016): shared-noise NCE on the One Billion Word Benchmark, 4 x 2048 LSTM."""

from .table import PERPLEXITY, SPEED, SPREAD, TEST, Table, regime, row

TABLE = Table(
    title="Zoph et al. (2016): shared noise on the One Billion Word Benchmark",
    corpus="obwb",
    regime=regime(
        "zoph2016",
        "Zoph et al. (2016) on OBWB: LSTM 4 x 2048, 128 sentences of 20 words, SGD",
        "--arch rnn_lm_zoph --tokens-per-sample 20 --batch-size 128 --batch-size-valid 128 "
        "--required-batch-size-multiple 1 --optimizer sparse_sgd --lr 14 --clip-norm 0.25 "
        "--lr-scheduler fixed --force-anneal 3 --lr-shrink 0.5 --max-epoch 4 "
        "--no-epoch-checkpoints --log-interval 200",
        "--batch-size 128",
    ),
    rows=(
        row(
            "shared_nce-100",
            "shared_nce",
            "--noise uniform --noise-samples 100 --row-sparse",
            test_ppl=43.2,
        ),
        row("bnce", "bnce", "--row-sparse"),
    ),
    columns=(TEST, PERPLEXITY, *SPREAD, *SPEED),
    about="""
The paper's: 43.2, four layers of 2048 units, 100 uniform draws shared by the batch, dropout 0.2.
Batch size, learning rate and schedule are this project's choice. bnce is not in the paper.""",
)
