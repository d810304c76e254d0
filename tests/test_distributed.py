"""Two ranks on one machine: gloo, through torchrun too, both of fairseq's DDP backends."""

import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import forks
import pytest
import torch
from tools import (
    LSTM,
    PLUGIN,
    TIED_TRANSFORMER,
    TRAINING,
    build,
    first_batch,
    modern,
    run,
    slow,
    write_lines,
)

from fairseq_bnce import losses
from fairseq_bnce.projection.batch import TokenBatch
from fairseq_bnce.sparse import row_sparse

# fairseq-train for one rank on a machine without a GPU. fairseq passes device ids to
# DistributedDataParallel, which CPU modules must not have. At the end each rank saves its model
# and how many bytes it has sent by way of Python (which pytorch_ddp's reducer does not take).
# IN_FLOAT64: to compare two ways of training, rounding left aside.
RANK = """
import os, sys, torch
import fairseq.models.distributed_fairseq_model as wrapping
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

plain = wrapping.DistributedDataParallel
class OnCPU(plain):
    def __init__(self, *args, device_ids=None, output_device=None, **kwargs):
        super().__init__(*args, **kwargs)
wrapping.DistributedDataParallel = OnCPU

folder, rank = sys.argv.pop(1), os.environ["RANK"]
sys.argv += ["--distributed-rank", rank]
exact = "IN_FLOAT64" in os.environ
models, make = [], Trainer.__init__
def remember(self, cfg, task, model, criterion, quantizer=None):
    models.append(model.double() if exact else model)
    make(self, cfg, task, model, criterion, quantizer)
Trainer.__init__ = remember

sent = [0]
def counted(collective, argument):
    def call(*args, **kwargs):
        sent[0] += args[argument].numel() * args[argument].element_size()
        return collective(*args, **kwargs)
    return call
torch.distributed.all_reduce = counted(torch.distributed.all_reduce, 0)
torch.distributed.all_gather = counted(torch.distributed.all_gather, 1)
cli_main()
parameters = {name: p.detach() for name, p in models[0].named_parameters()}
result = {"parameters": parameters, "sent": sent[0]}
torch.save(result, os.path.join(folder, "rank%s.pt" % rank))
"""


def rank_command(corpus, folder, *flags, meet="env://"):
    """RANK as a script in ``folder``, and its arguments."""
    folder.mkdir(exist_ok=True)
    (folder / "rank.py").write_text(RANK, encoding="utf-8")
    # Said in full: what fairseq infers from torchrun's environment, it divides by the GPUs.
    rest = ["--user-dir", PLUGIN, "--task", "language_modeling", "--save-dir", folder / "run"]
    rest += ["--distributed-backend", "gloo", "--distributed-world-size", "2"]
    rest += ["--distributed-init-method", meet, "--distributed-no-spawn"]
    return [folder / "rank.py", folder, corpus, *rest, *TRAINING, *flags]


def train_with_torchrun(corpus, folder, *flags):
    launch = ["--nproc_per_node", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0"]
    command = rank_command(corpus, folder, *flags)
    return run("torch.distributed.run", *launch, *command)


def train_on_two_ranks(corpus, folder, *flags, env=None):
    """As torchrun does, in two forks: (exit statuses, what the ranks printed).

    They meet in a file: a port that was free may be taken when they bind it.
    """
    meet = f"file://{tempfile.mkdtemp(dir=folder.parent)}/meet"
    command = [sys.executable, *rank_command(corpus, folder, *flags, meet=meet)]
    shared = {**os.environ, **(env or {}), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    printed = [folder / "rank0.log", folder / "rank1.log"]
    ranks = []
    for rank, log in enumerate(printed):
        named = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with log.open("wb") as stream:
            started = forks.Popen(command, env=named, stdout=stream, stderr=subprocess.STDOUT)
        ranks.append(started)
    return [rank.wait() for rank in ranks], "".join(log.read_text("utf-8") for log in printed)


def trained_on_two_ranks(*arguments, **named):
    statuses, output = train_on_two_ranks(*arguments, **named)
    assert statuses == [0, 0], output


def results(folder):
    return [torch.load(folder / f"rank{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize(
    "architecture, backend",
    [
        (LSTM, "pytorch_ddp"),
        *modern((TIED_TRANSFORMER, "legacy_ddp")),
        *slow((LSTM, "legacy_ddp"), (TIED_TRANSFORMER, "pytorch_ddp")),
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


def test_row_sparse_is_dense_on_two_ranks(corpus, tmp_path):
    """Both backends, three epochs of 8 updates, clipped, the last with a dummy batch on a rank."""
    flags = [*LSTM, "--batch-size", "11", "--max-epoch", "3", "--lr", "0.5"]
    flags += ["--clip-norm", "0.004", "--disable-validation", "--no-save", "--noise-samples", "3"]
    dense = ["--criterion", "bnce", "--optimizer", "sparse_sgd", "--ddp-backend", "pytorch_ddp"]
    trained_on_two_ranks(corpus, tmp_path / "dense", *flags, *dense, env=IN_FLOAT64)
    want = results(tmp_path / "dense")[0]["parameters"]
    for backend in ("pytorch_ddp", "legacy_ddp"):
        folder = tmp_path / backend
        sparse = [*flags, *ROW_SPARSE, "--ddp-backend", backend]
        trained_on_two_ranks(corpus, folder, *sparse, env=IN_FLOAT64)
        first, second = (result["parameters"] for result in results(folder))
        for name, value in want.items():
            assert torch.equal(first[name], second[name]), (backend, name)
            error = (first[name] - value).norm() / value.norm()
            assert error < 1e-6, (backend, name, error)


@pytest.mark.slow  # gigabytes
def test_a_million_types_are_not_exchanged(tmp_path):
    """Everything that a rank sends in an update, LSTM included: below 1 % of dense gradients."""
    types, size, updates = 1_000_000, 200, 3
    names = [f"word{i}" for i in range(types - 4)]  # and fairseq's four
    write_lines(tmp_path / "words.txt", [f"{name} 1" for name in names])
    # All of a batch's words differ, which real text's don't: as many rows as there can be.
    chosen = random.Random(1).sample(names, 4000)
    lines = [" ".join(chosen[i : i + 20]) for i in range(0, len(chosen), 20)]
    for split in ("train", "valid"):
        write_lines(tmp_path / f"{split}.txt", lines)
    data = tmp_path / "data"
    prefixes = ["--trainpref", tmp_path / "train.txt", "--validpref", tmp_path / "valid.txt"]
    source = ["--only-source", "--srcdict", tmp_path / "words.txt", "--destdir", data]
    run("fairseq_cli.preprocess", *source, *prefixes)
    flags = [*LSTM, "--max-update", str(updates), "--disable-validation", "--no-save"]
    flags += ["--batch-size", "20", "--tokens-per-sample", "20", "--ddp-backend", "legacy_ddp"]
    for part in ("embed-dim", "hidden-size", "out-embed-dim"):
        flags += [f"--decoder-{part}", str(size)]
    trained_on_two_ranks(data, tmp_path, *flags, *ROW_SPARSE)
    dense = sum(value.numel() * 4 for value in results(tmp_path)[0]["parameters"].values())
    assert dense > 2 * types * size * 4
    for result in results(tmp_path):
        assert 0 < result["sent"] / updates < 0.01 * dense
        print(f"{result['sent'] / updates:,.0f} bytes an update, dense {dense:,.0f}")


def on_two_ranks(function, *arguments):
    """What ``function(rank, *arguments)`` returns on each of two gloo ranks, forks of this one."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            # Of daemons none waits for a rank that has failed once the tests are over.
            context.Process(
                target=in_rank, args=(rank, Path(folder), function, arguments), daemon=True
            )
            for rank in (0, 1)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            assert rank.exitcode == 0
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def in_rank(rank, folder, function, arguments):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    torch.save(function(rank, *arguments), folder / f"{rank}.pt")


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
    batch = TokenBatch.from_sample(model, first_batch(task, sentences=2 + rank), 1)
    unigram = criterion.noise.unigram.log_q.exp()
    draws = []
    draw = criterion.noise.draw
    criterion.noise.draw = lambda *shape: draws.append(draw(*shape)) or draws[-1]
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


def test_find_unused_parameters_is_refused(corpus, tmp_path):
    flags = [*LSTM, "--criterion", "bnce", "--find-unused-parameters"]
    statuses, output = train_on_two_ranks(corpus, tmp_path, *flags)
    assert 0 not in statuses
    assert "--find-unused-parameters: required off" in re.sub(r"\s+", " ", output)
