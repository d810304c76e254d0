"""Two ranks on one machine: gloo, through torchrun too, both of fairseq's DDP backends."""

import random

import pytest
import torch
from criteria import prepared
from tools import LSTM, TIED_TRANSFORMER, binarise, build, first_batch, slow, write_lines
from two_ranks import (
    on_two_ranks,
    results,
    train_on_ranks,
    train_with_torchrun,
    trained_on_ranks,
)

from fairseq_bnce import losses
from fairseq_bnce.optim import row_sparse


@pytest.mark.parametrize(
    "architecture, backend",
    [
        (LSTM, "pytorch_ddp"),
        *slow((TIED_TRANSFORMER, "legacy_ddp")),
    ],
)
def test_ranks_stay_synchronised(architecture, backend, corpus, tmp_path):
    """15 batches on 2 ranks: in the last of 8 updates one rank has a dummy batch."""
    flags = [*architecture, "--criterion", "nce_regularized", "--ddp-backend", backend]
    output = train_with_torchrun(corpus, tmp_path, *flags, "--log-z", "4", "--batch-size", "11")
    assert "training on 2 devices" in output and '"valid_num_updates": "8"' in output
    first, second = (result["parameters"] for result in results(tmp_path))
    start = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=False)
    assert start["task_state"]["sigma_z"] > 0
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert torch.equal(value, start["model"][name]), name


ROW_SPARSE = ["--criterion", "bnce", "--optimizer", "sparse_sgd", "--row-sparse"]
IN_FLOAT64 = {"IN_FLOAT64": "1"}


def test_a_rank_that_dies(corpus, tmp_path):
    """The other one stops; the same command goes on, and ends as without the accident.

    Each rank has its own recurrent state, which goes on, too.
    """
    flags = ["--arch", "rnn_lm_gm30", "--stateful", *ROW_SPARSE, "--ddp-backend", "legacy_ddp"]
    flags += ["--state-reset-rate", "0", "--batch-size", "4", "--save-interval-updates", "4"]
    trained_on_ranks(corpus, tmp_path / "whole", *flags)
    statuses, _ = train_on_ranks(corpus, tmp_path / "again", *flags, env={"DIES_AT": "6"})
    assert 0 not in statuses
    trained_on_ranks(corpus, tmp_path / "again", *flags)
    want, found = (results(tmp_path / name)[0]["parameters"] for name in ("whole", "again"))
    assert all(torch.equal(value, found[name]) for name, value in want.items())


@pytest.mark.parametrize(
    "architecture, alone, together, on_gpu",
    [
        (LSTM, ["--update-freq", "2"], ["--ddp-backend", "pytorch_ddp"], False),
        (TIED_TRANSFORMER, ["--update-freq", "4"], ["--update-freq", "2"], False),
        (LSTM, ["--batch-size", "200"], ["--batch-size", "100", "--gather-noise"], False),
        pytest.param(LSTM, ["--update-freq", "2"], [], True, marks=pytest.mark.gpu),
    ],
    ids=["a batch each", "two batches each", "gathered noise", "one GPU"],
)
def test_two_ranks_are_one_process(architecture, alone, together, on_gpu, corpus, tmp_path):
    """Row-sparse on two ranks, and dense in one process; some updates have a dummy batch."""
    flags = [*architecture, "--batch-size", "11", "--max-epoch", "2", "--lr", "0.5", "--dropout"]
    flags += ["0", "--clip-norm", "0.004", "--disable-validation", "--no-save"]
    dense = [*flags, "--criterion", "bnce", "--optimizer", "sparse_sgd", *alone]
    trained_on_ranks(corpus, tmp_path / "one", *dense, env=IN_FLOAT64, world=1, on_gpu=on_gpu)
    sparse = [*flags, *ROW_SPARSE, "--ddp-backend", "legacy_ddp", *together]
    trained_on_ranks(corpus, tmp_path / "two", *sparse, env=IN_FLOAT64, on_gpu=on_gpu)
    (want,) = (result["parameters"] for result in results(tmp_path / "one"))
    first, second = (result["parameters"] for result in results(tmp_path / "two"))
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
    trained_on_ranks(data, tmp_path, *flags, *ROW_SPARSE)
    dense = sum(value.numel() * 4 for value in results(tmp_path)[0]["parameters"].values())
    assert dense > 2 * types * size * 4
    for result in results(tmp_path):
        assert 0 < result["sent"] / updates < 0.01 * dense
        print(f"{result['sent'] / updates:,.0f} bytes an update, dense {dense:,.0f}")


def gradients_of(rank, dtype):
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(50, (7 + 5 * rank,), generator=generator)
    rows = torch.randn(len(ids), 4, generator=generator).to(dtype)
    own = row_sparse.sparse_rows(ids, rows, torch.Size([50, 4]))
    nothing = row_sparse.sparse_rows(ids[:0], rows[:0], torch.Size([50, 4]))
    means = [row_sparse.mean_over_ranks(g) for g in (own, own if rank else nothing, nothing)]
    return own.to_dense(), [mean.to_dense() for mean in means], [m._nnz() for m in means]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mean_over_ranks(dtype):
    """Ranks of different row counts, one without any, and none at all."""
    (a, of_first, counts), (b, of_second, _) = on_two_ranks(gradients_of, dtype)
    for want, one, other in zip([(a + b) / 2, b / 2, 0 * a], of_first, of_second):
        assert torch.equal(one, other) and one.dtype == dtype
        tolerance = 1e-6 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(one, want, rtol=tolerance, atol=tolerance)
    assert counts[2] == 0 and counts[0] <= 19


def loss_with_gathered_noise(rank, corpus):
    flags = [*LSTM, "--criterion", "bnce", "--gather-noise", "--noise-samples", "2"]
    flags += ["--noise", "uniform"]
    cfg, task, model = build(corpus, *flags, "--dropout", "0")
    criterion = task.build_criterion(cfg.criterion)
    draws, sample = [], criterion.noise.sample
    criterion.noise.sample = lambda *shape: draws.append(sample(*shape)) or draws[-1]
    batch = prepared(criterion, model, first_batch(task, sentences=2 + rank))
    unigram = criterion.noise.unigram.log_q.exp()
    loss = criterion.objective(batch).sum().item()
    return loss, batch.features.detach(), batch.target, draws[0], unigram, batch.layer.full()


def test_gathered_noise_is_the_other_ranks_targets(corpus):
    ranks = on_two_ranks(loss_with_gathered_noise, corpus)
    assert not torch.equal(ranks[0][3], ranks[1][3])
    for (loss, features, target, draws, unigram, rows), other in (ranks, ranks[::-1]):
        noise = torch.cat([other[2], draws])
        targets = len(target) - 1 + len(other[2])
        q = (targets * unigram + 2 / len(unigram)) / (targets + 2)
        want = losses.batch_nce_loss(features, target, *rows, q.log(), noise_ids=noise).item()
        assert loss == pytest.approx(want, rel=1e-5)
