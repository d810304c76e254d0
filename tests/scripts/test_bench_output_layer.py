"""scripts/bench_output_layer.py: its heads, and the command."""

import importlib.util
import json
import math
import subprocess
import sys

import bench_output_layer
import forks
import pytest
import torch
from experiments import processes
from experiments.measures import layers as heads
from experiments.measures import meter

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
SHAPE = heads.Shape(40, 16, 2000)
HERE = ["cross_entropy", *heads.OWN]
if hasattr(torch.nn.functional, "linear_cross_entropy"):
    HERE.append("linear_cross_entropy")


@pytest.fixture
def problem():
    return heads.make_problem(SHAPE, torch.float32, torch.device("cpu"))


# ---- heads -------------------------------------------------------------------------------------


def test_targets_follow_the_law_and_the_seed(problem):
    device, shape = torch.device("cpu"), heads.Shape(20_000, 1, 50)
    made = [heads.make_problem(shape, torch.float32, device, seed) for seed in (1, 1, 2)]
    assert torch.equal(made[0].target, made[1].target)
    assert not torch.equal(made[0].target, made[2].target)
    p = (torch.arange(1, 51) + 2.7) ** -1.1
    expected = 20_000 * p / p.sum()
    # Pearson's statistic: mean 49, standard deviation about 10.
    assert ((torch.bincount(made[0].target, minlength=50) - expected) ** 2 / expected).sum() < 100
    scores = problem.features @ problem.weight.t()
    assert 0.9 < scores.std() < 1.1


@pytest.mark.parametrize("name", HERE)
def test_every_head_computes_its_gradients_and_drops_them(name, problem, monkeypatch):
    found = []

    def drop(self):
        found.append((self.features.grad, self.weight.grad))
        self.features.grad = self.weight.grad = None

    monkeypatch.setattr(heads.Problem, "drop_gradients", drop)
    loss = heads.HEADS[name](problem)()
    ((of_features, of_weight),) = found
    assert math.isfinite(loss) and not loss.requires_grad
    assert of_features.any(dim=1).all() and of_weight.shape == (2000, 16)
    assert of_weight.is_sparse == name.startswith(("bnce_sparse", "shared_nce_sparse"))
    assert problem.weight.grad is None


def test_heads_of_one_loss_agree(problem):
    losses = {name: heads.HEADS[name](problem)().item() for name in HERE}
    exact = torch.nn.functional.cross_entropy(problem.features @ problem.weight.t(), problem.target)
    for name, loss in losses.items():
        if name in heads.EXACT:
            assert loss == pytest.approx(exact.item(), rel=1e-4)
        if name.startswith("bnce"):
            assert loss == pytest.approx(losses["bnce"], rel=1e-5)


def test_row_sparse_heads_hold_nothing_of_the_vocabularys_size(problem):
    dense, sparse = (
        meter.peak_bytes(heads.HEADS[name](problem), cuda=False) for name in ("bnce", "bnce_sparse")
    )
    of_vocabulary = 4 * 2000 * 16
    assert sparse < of_vocabulary / 2 < of_vocabulary < dense


def test_the_limit_is_three_products(problem):
    with torch.profiler.profile() as profiled:
        assert heads.HEADS[heads.LIMIT](problem)() is None
    calls = {event.key: event.count for event in profiled.key_averages()}
    assert calls["aten::mm"] == 3


# ---- the command -------------------------------------------------------------------------------


run_process = processes.run


def or_dead(command, log, threads):
    """Run a process; cross_entropy dies at its second shape."""
    if "cross_entropy" in command and "20x16x1000" in command:
        raise processes.CommandFailed("killed by signal 9")
    return run_process(command, log, threads)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Run heads, of which one dies and one lacks its package: (exit status, folder)."""
    out = tmp_path_factory.mktemp("output_layer")
    arguments = ["--out", str(out), "--device", "cpu", "--dtype", "float32", "--calls", "3"]
    arguments += ["--max-seconds", "1", "--shapes", "40x16x2000", "20x16x1000"]
    arguments += ["--heads", "cross_entropy", "liger", heads.LIMIT, "bnce", "bnce_sparse"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forks.Popen)
        patch.setattr(processes, "run", or_dead)
        patch.setitem(sys.modules, "liger_kernel", None)
        return bench_output_layer.main(arguments), out


def test_a_benchmark_has_every_number(benchmark):
    status, out = benchmark
    assert status == 0
    found = json.loads((out / "output_layer.json").read_text(encoding="utf-8"))
    rows = {(row["head"], row["shape"]): row for row in found["rows"]}
    assert len(rows) == 10
    for head in (heads.LIMIT, "bnce", "bnce_sparse"):
        for shape in ("40x16x2000", "20x16x1000"):
            row = rows[head, shape]
            assert row["calls"] >= 3 and row["of_limit"] > 0
            assert 0 < row["fastest_ms"] <= row["ms"] <= row["slowest_ms"]
            assert row["extra_mb"] > 0 and row["distinct_targets"] <= 40
    assert rows["bnce", "40x16x2000"]["x_exact"] > 0
    assert rows["bnce", "20x16x1000"]["x_exact"] is None
    assert found["settings"]["device"] == "cpu"


def test_the_report_has_tables_a_picture_and_failed_heads(benchmark):
    out = benchmark[1]
    text = (out / "output_layer.md").read_text(encoding="utf-8")
    assert "## N = 40, D = 16, V = 2,000, U = " in text and text.count("| bnce_sparse |") == 2
    assert text.count("liger_kernel") >= 2 and text.count("| liger | failed: ") == 2
    assert text.count("| cross_entropy | failed: killed by signal 9") == 1
    if importlib.util.find_spec("matplotlib") is not None:
        assert (out / "output_layer.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((out / "output_layer.json").read_text(encoding="utf-8"))["rows"]
    times = {row["head"]: row.get("ms") for row in found if row["shape"] == "40x16x2000"}
    own = next(row for row in found if row["head"] == "bnce")
    assert own["x_exact"] == pytest.approx(times["cross_entropy"] / times["bnce"])
    assert own["of_limit"] == pytest.approx(times["bnce"] / times[heads.LIMIT])


def test_only_a_failed_head_of_ours_is_a_failure(tmp_path, monkeypatch, capsys):
    def killed(command, log, threads):
        raise processes.CommandFailed("killed by signal 9")

    monkeypatch.setattr(processes, "run", killed)
    arguments = ["--out", str(tmp_path), "--device", "cpu", "--heads"]
    assert bench_output_layer.main([*arguments, "liger"]) == 0
    assert bench_output_layer.main([*arguments, "bnce"]) == 1


@pytest.mark.parametrize(
    "flags", [["--shapes", "40x16"], pytest.param(["--device", "cuda"], marks=NO_GPU)]
)
def test_unusable_flags_are_named(flags, tmp_path, capsys):
    try:
        status = bench_output_layer.main(["--out", str(tmp_path), *flags])
    except SystemExit as end:
        status = end.code
    assert status == 2 and flags[0] in capsys.readouterr().err
