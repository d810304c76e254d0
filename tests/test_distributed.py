"""Two ranks on one machine: gloo, through torchrun too, both of fairseq's DDP backends."""

import random

import pytest
import torch
from scoring_models import BANDS
from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER, binarise, build, slow, write_lines
from two_ranks import results, train_on_ranks, train_with_torchrun, trained_on_ranks

from fairseq_bnce.tasks.streams import stream_batches

# Of batches so small that most have no word of some band.
SMALLEST = ["--batch-size", "1", "--sample-break-mode", "eos", "--max-update", "12"]
for _part in ("adaptive-softmax", "attention", "activation"):
    SMALLEST += [f"--{_part}-dropout", "0"]
MEASURED = [*TRANSFORMER, "--init-output-bias", "none"]


BACKENDS = [(MEASURED, "pytorch_ddp"), *slow(([*MEASURED, "--learn-log-z"], "legacy_ddp"))]


@pytest.mark.parametrize("architecture, backend", BACKENDS)
def test_ranks_stay_synchronised(architecture, backend, corpus, tmp_path):
    """15 batches on 2 ranks: in the last of 8 updates one rank has a dummy batch.

    log Z is measured on both ranks' first batches.
    """
    flags = [*architecture, "--criterion", "nce_regularized", "--ddp-backend", backend]
    output = train_with_torchrun(corpus, tmp_path, *flags, "--batch-size", "11")
    assert "training on 2 devices" in output and '"valid_num_updates": "8"' in output
    first, second = (result["parameters"] for result in results(tmp_path))
    start = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=False)
    assert start["task_state"]["sigma_z"] > 0
    assert start["task_state"]["log_z"] == pytest.approx(4.1, abs=0.4)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert torch.equal(value, start["model"][name]), name


PYTORCH_DDP = ["--ddp-backend", "pytorch_ddp"]
ROW_SPARSE = ["--criterion", "bnce", "--optimizer", "sparse_sgd", "--row-sparse"]
IN_FLOAT64 = {"IN_FLOAT64": "1"}


def test_a_rank_that_dies(corpus, tmp_path):
    """The other one stops; the same command goes on, and ends as without the accident.

    Each rank has its own recurrent state, which goes on, too: also after a validation with a larger
    batch in mid-epoch, and with a dummy batch on rank 1 in the end.
    """
    flags = ["--arch", "rnn_lm_gm30", "--stateful", *ROW_SPARSE, "--ddp-backend", "legacy_ddp"]
    flags += ["--state-reset-rate", "0", "--batch-size", "4", "--save-interval-updates", "4"]
    flags += ["--tokens-per-sample", "10", "--batch-size-valid", "6"]
    _, task, _ = build(corpus, *flags, "--task", "language_modeling")
    task.load_dataset("train")
    batches = stream_batches(len(task.dataset("train")), 4, 2)
    assert batches[-1] == []
    flags += ["--validate-interval-updates", str(len(batches) // 2 - 1)]
    whole = trained_on_ranks(corpus, tmp_path / "whole", *flags)
    statuses, _ = train_on_ranks(corpus, tmp_path / "again", *flags, env={"DIES_AT": "6"})
    assert 0 not in statuses
    again = trained_on_ranks(corpus, tmp_path / "again", *flags)
    want, *others = (rank["parameters"] for rank in [*whole, *again])
    assert all(torch.equal(value, one[name]) for name, value in want.items() for one in others)


ONE_PROCESS = [
    (LSTM, ["--update-freq", "2"], PYTORCH_DDP, False),
    (TIED_TRANSFORMER, ["--update-freq", "4"], ["--update-freq", "2"], False),
    (LSTM, ["--batch-size", "200"], ["--batch-size", "100", "--gather-noise"], False),
    (BANDS, ["--update-freq", "2", *SMALLEST], SMALLEST, False),
    *slow((BANDS, ["--update-freq", "2", *SMALLEST], [*SMALLEST, *PYTORCH_DDP], False)),
    pytest.param(LSTM, ["--update-freq", "2"], [], True, marks=pytest.mark.gpu),
]


@pytest.mark.parametrize(
    "architecture, alone, together, on_gpu",
    ONE_PROCESS,
    ids=["a batch each", "two batches each", "gathered noise", "bands", "bands, ddp", "one GPU"],
)
def test_two_ranks_are_one_process(architecture, alone, together, on_gpu, corpus, tmp_path):
    """Row-sparse on two ranks, and dense in one process; some updates have a dummy batch."""
    flags = [*architecture, "--batch-size", "11", "--max-epoch", "2", "--lr", "0.5", "--dropout"]
    flags += ["0", "--clip-norm", "0.004", "--disable-validation", "--no-save"]
    dense = [*flags, "--criterion", "bnce", "--optimizer", "sparse_sgd", *alone]
    named = {"env": IN_FLOAT64, "on_gpu": on_gpu}
    one = trained_on_ranks(corpus, tmp_path / "one", *dense, **named, world=1)
    sparse = [*flags, *ROW_SPARSE, "--ddp-backend", "legacy_ddp", *together]
    two = trained_on_ranks(corpus, tmp_path / "two", *sparse, **named)
    want, first, second = (result["parameters"] for result in [*one, *two])
    for name, value in want.items():
        assert torch.equal(first[name], second[name]), name
        assert (first[name] - value).norm() < 1e-6 * value.norm(), name


@pytest.mark.slow  # gigabytes
def test_a_million_types_are_not_exchanged(tmp_path):
    """Everything that a rank sends in an update, LSTM included: below 1 % of dense gradients."""
    types, size, updates = 1_000_000, 200, 3
    names = [f"word{i}" for i in range(types - 4)]  # and fairseq's four
    write_lines(tmp_path / "words.txt", [f"{name} 1" for name in names])
    # All of a batch's words differ, which real text's don't: as many rows as there can be.
    chosen = random.Random(1).sample(names, 4000)
    lines = [" ".join(chosen[i : i + 20]) for i in range(0, len(chosen), 20)]
    write_lines(tmp_path / "train.txt", lines)
    data = binarise(tmp_path, tmp_path / "data", "--srcdict", tmp_path / "words.txt")
    flags = [*LSTM, "--max-update", str(updates), "--disable-validation", "--no-save"]
    flags += ["--batch-size", "20", "--tokens-per-sample", "20", "--ddp-backend", "legacy_ddp"]
    for part in ("embed-dim", "hidden-size", "out-embed-dim"):
        flags += [f"--decoder-{part}", str(size)]
    found = trained_on_ranks(data, tmp_path, *flags, *ROW_SPARSE)
    dense = sum(value.numel() * 4 for value in found[0]["parameters"].values())
    assert dense > 2 * types * size * 4
    for result in found:
        assert 0 < result["sent"] / updates < 0.01 * dense
        print(f"{result['sent'] / updates:,.0f} bytes an update, dense {dense:,.0f}")
