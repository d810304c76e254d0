"""``--matmul-precision``: torch's, in fairseq-train and eval-lm, and in nobody else's process."""

import pytest
import torch
from tools import build

RNN = ["--arch", "rnn_lm", "--decoder-embed-dim", "8", "--criterion", "bnce"]
MEDIUM = ["--matmul-precision", "medium"]


@pytest.fixture
def precisions(monkeypatch):
    """Those that torch is told."""
    told = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", told.append)
    return told


@pytest.mark.parametrize("flags, expected", [(MEDIUM, ["medium"]), ([], [])])
def test_of_training_and_eval_lm(corpus, precisions, flags, expected):
    _, task, model = build(corpus, *RNN, *flags)
    task.load_dataset("valid")
    assert precisions == []
    task.begin_epoch(1, model)
    assert precisions == expected
    precisions.clear()
    task.eval_lm_dataloader(task.dataset("valid"), max_tokens=100, max_positions=50)
    assert precisions == expected
