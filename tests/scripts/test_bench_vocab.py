"""bench.py vocabulary: its data, its measures, and the command."""

import json
import math
import subprocess
from types import SimpleNamespace

import bench
import forks
import numpy as np
import pytest
import torch
from experiments import gpu_run, processes
from experiments.benches import vocabulary
from experiments.measures import data, layers, meter
from fairseq.data import Dictionary, data_utils

VOCAB = 200


def test_fairseq_loads_the_data_whose_words_follow_the_law(tmp_path):
    data.make(str(tmp_path / "data"), VOCAB, 40_000)
    dictionary = Dictionary.load(str(tmp_path / "data/dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(tmp_path / "data/train"), dictionary)
    sentences = [dataset[item] for item in range(len(dataset))]
    assert len(dictionary) == VOCAB and sum(map(len, sentences)) == 40_000
    counts = torch.bincount(torch.cat(sentences).long(), minlength=VOCAB).numpy()[4:]
    assert counts.tolist() == dictionary.count[4:]
    p = 1 / (np.arange(1, 197) + 2.7) ** 1.1
    expected = counts.sum() * p / p.sum()
    # Pearson's statistic: mean 195, standard deviation about 20.
    assert ((counts - expected) ** 2 / expected).sum() < 300
    lines = (tmp_path / "data/train.txt").read_text(encoding="utf-8").splitlines()
    assert lines[3] == dictionary.string(sentences[3]) and len(lines) == len(sentences)


def test_the_peak_counts_memory_held_at_once_also_in_the_backward_pass():
    weight = torch.randn(1000, 1000, requires_grad=True)
    piece = 4 * 1000 * 1000

    def update():
        for _ in range(3):
            torch.empty(1000, 1000)  # one after the other
        (weight * 2).square().sum().backward()
        weight.grad = None

    # The doubled weight, its gradient, and the tensors that the gradient is made from.
    assert 2 * piece < meter.peak_bytes(update, cuda=False) < 5 * piece
    assert meter.peak_bytes(lambda: None, cuda=False) == 0


def test_the_exponent_is_that_of_a_power_law():
    law = [(v, 3.0 * v**0.7) for v in (10**4, 10**5, 10**6)]
    assert vocabulary.exponent([*law, (10**7, None)]) == pytest.approx(0.7)
    assert vocabulary.exponent([(10**4, 1.0), (10**5, None)]) is None


# ---------------------------------------------------------------- output layers of gpu_run.py


@pytest.fixture
def problem():
    return layers.make_problem("40x16x2000", torch.float32, torch.device("cpu"))


def test_heads_of_one_loss_agree_and_sparse_ones_hold_few_rows(problem):
    losses = {name: layers.make_head(name, problem)().item() for name in ("bnce", "cross_entropy")}
    exact = torch.nn.functional.cross_entropy(problem.features @ problem.weight.t(), problem.target)
    assert losses["cross_entropy"] == pytest.approx(exact.item(), rel=1e-4)
    dense = meter.peak_bytes(layers.make_head("bnce", problem), cuda=False)
    head = layers.make_head("bnce_sparse", problem)
    assert head().item() == pytest.approx(losses["bnce"], rel=1e-5)
    of_vocabulary = 4 * 2000 * 16
    assert meter.peak_bytes(head, cuda=False) < of_vocabulary / 2 < of_vocabulary < dense


STAGES = [([{"key": ["a"]}], 0), ([{"key": ["a"], "failed": "why"}], 1), ([], 1)]


@pytest.mark.parametrize("rows, status", STAGES)
def test_a_stage_that_measures_nothing_is_a_failure(rows, status, tmp_path, monkeypatch):
    (tmp_path / "layer.json").write_text('[{"key": ["of an earlier call"]}]')

    def child(name, out):
        if rows and name == "layer":
            (out / f"{name}.json").write_text(json.dumps(rows))
        return SimpleNamespace(wait=lambda *_: 0)

    monkeypatch.setattr(gpu_run, "_child", child)
    assert gpu_run.main(["--out", str(tmp_path), "--tiny", "--stages", "layer"]) == status
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["layer"] == rows


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Run a benchmark with a training that dies: (folder, exit status)."""
    out, run_process = tmp_path_factory.mktemp("benchmark"), processes.run

    def or_dead(command, log, threads):
        if any(str(word).endswith("train.py") for word in command) and "shared_nce" in command:
            raise processes.CommandFailed("killed by signal 9")
        return run_process(command, log, threads)

    flags = f"vocabulary --out {out} --device cpu --vocab {VOCAB} --updates 10 --max-seconds 1"
    flags += " --sentences 5 --systems cross_entropy bnce bnce_sparse shared_nce"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forks.Popen)
        patch.setattr(processes, "run", or_dead)
        return out, bench.main(flags.split())


def runs_of(out):
    found = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))
    return {run["system"]: run for run in found["runs"]}


def test_a_benchmark_has_every_number(benchmark):
    found = runs_of(benchmark[0])
    numbers = ("words_per_second", "words_per_processor_second", "update_mib")
    for name in ("cross_entropy", "bnce"):
        row = found[name]
        assert "failed" not in row
        assert all(math.isfinite(row[one]) and row[one] > 0 for one in numbers)
        update = row["parts"]["update"]["value"]
        assert row["updates"] >= 10 and row["parts"]["train"]["plugin"]
        assert all(ms > 0 for ms in update["milliseconds"].values())
        assert update["peak_bytes"] > 4 * VOCAB * 200


def test_a_run_that_dies_is_a_row_with_the_reason(benchmark):
    out, status = benchmark
    dead = runs_of(out)["shared_nce"]
    assert status == 1 and dead["failed"] == "killed by signal 9"
    assert dead["update_mib"] > 0 and "words_per_second" not in dead
