"""scripts/bench_output_layer.py: its heads, what it makes of numbers, and the command."""

import importlib.util
import json
import math
import subprocess
import sys

import bench_output_layer
import forks
import pytest
import torch
from experiments import output_layer, processes
from experiments.measures import layers as heads
from experiments.measures import meter
from experiments.run import Outcome
from tools import run

SHAPE = heads.Shape(40, 16, 2000)
HERE = ["cross_entropy", *heads.OWN]
if hasattr(torch.nn.functional, "linear_cross_entropy"):
    HERE.append("linear_cross_entropy")


@pytest.fixture
def problem():
    return heads.make_problem(SHAPE, torch.float32, torch.device("cpu"))


# ---- heads -------------------------------------------------------------------------------------


def test_a_shape_is_read_as_it_is_written():
    assert (
        str(heads.Shape.parse("40x16x2000")) == "40x16x2000"
        and heads.Shape.parse("1x2x3").size == 2
    )
    for wrong in ("40x16", "40x0x3", "40X16X2000", "axbxc", "1x2x3x4"):
        with pytest.raises(ValueError, match=f"required NxDxV, got {wrong}"):
            heads.Shape.parse(wrong)


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


@pytest.mark.parametrize(
    "name, module, package",
    [
        ("liger", "liger_kernel", "liger-kernel"),
        ("cut_cross_entropy", "cut_cross_entropy", "cut-cross-entropy"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(name, module, package, problem, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RuntimeError, match=rf"required {package} \(pip install '\.\[bench\]'"):
        heads.HEADS[name](problem)


# ---- numbers -----------------------------------------------------------------------------------


def numbers(ms, extra_bytes=1e6):
    return {"ms": ms, "extra_bytes": extra_bytes, "distinct_targets": 7}


def made_rows(vocab, own_ms, own_bytes):
    shape = heads.Shape(8192, 2304, vocab)
    found = {
        "cross_entropy": numbers(200.0),
        "compiled": numbers(100.0),
        heads.LIMIT: numbers(4.0),
        "bnce": numbers(12.5),
        "bnce_sparse": numbers(own_ms, own_bytes),
    }
    outcomes = [Outcome(name, shape, parts={"head": {"value": one}}) for name, one in found.items()]
    dead = Outcome("liger", shape, errors={"": "no memory"})
    return output_layer.numbers([*outcomes, dead])


def test_ratios_are_to_the_fastest_exact_head_and_the_limit():
    rows = {head: one for (head, _), one in made_rows(256_000, 5.0, 150e6).items()}
    assert "liger" not in rows
    assert rows["bnce_sparse"]["x_exact"] == 20 and rows["bnce_sparse"]["of_limit"] == 1.25
    assert rows["bnce_sparse"]["extra_mb"] == 150 and rows["compiled"]["x_exact"] == 1


# ---- the command -------------------------------------------------------------------------------


run_process = processes.run


def or_dead(command, log, threads):
    """As processes.run; cross_entropy dies at its second shape."""
    if "cross_entropy" in command and "20x16x1000" in command:
        raise processes.CommandFailed("killed by signal 9 (see head.log)")
    return run_process(command, log, threads)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """(exit status, folder) of a benchmark of which one head dies and one has no package."""
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


def test_a_benchmark_is_written_as_tables_and_picture(benchmark):
    out = benchmark[1]
    text = (out / "output_layer.md").read_text(encoding="utf-8")
    assert "## N = 40, D = 16, V = 2,000, U = " in text and text.count("| bnce_sparse |") == 2
    assert text.count("| liger | failed: RuntimeError: required liger-kernel") == 2
    assert text.count("| cross_entropy | failed: killed by signal 9") == 1
    if importlib.util.find_spec("matplotlib") is not None:
        assert (out / "output_layer.png").read_bytes().startswith(b"\x89PNG")


def test_a_dead_head_of_ours_is_a_failure(tmp_path, monkeypatch, capsys):
    def killed(command, log, threads):
        raise processes.CommandFailed("killed by signal 9")

    monkeypatch.setattr(processes, "run", killed)
    arguments = ["--out", str(tmp_path), "--device", "cpu", "--heads"]
    assert bench_output_layer.main([*arguments, "liger"]) == 0
    assert "skipped" in capsys.readouterr().out  # nothing to draw
    assert bench_output_layer.main([*arguments, "bnce"]) == 1


def test_a_process_of_its_own_measures(tmp_path):
    found = tmp_path / "found.json"
    arguments = ["--out", found, "--head", heads.LIMIT, "--shape", "40x16x2000", "--device", "cpu"]
    limits = ["--updates", 3, "--seconds", 1]
    run("experiments.measure", "head", *arguments, "--dtype", "bfloat16", *limits)
    assert json.loads(found.read_text(encoding="utf-8"))["ms"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(tmp_path, capsys):
    assert bench_output_layer.main(["--out", str(tmp_path), "--device", "cuda"]) == 2
    assert "required a GPU that torch can use, got none" in capsys.readouterr().err
