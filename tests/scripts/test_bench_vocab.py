"""scripts/bench_vocab.py: its data, its measures, and the command."""

import importlib.util
import json
import math
import shutil
import subprocess
from pathlib import Path

import bench_vocab
import forks
import numpy as np
import pytest
import torch
from experiments import logs, machine, processes, vocabulary
from experiments.measures import data, meter, updates
from fairseq.data import Dictionary, data_utils

VOCAB = 200


@pytest.fixture(scope="module")
def zipf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zipf") / "data"
    data.main(["--out", str(folder), "--vocab", str(VOCAB), "--tokens", "40000"])
    return folder


def test_fairseq_loads_the_data_whose_words_follow_the_law(zipf):
    dictionary = Dictionary.load(str(zipf / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(zipf / "train"), dictionary)
    sentences = [dataset[item] for item in range(len(dataset))]
    assert len(dictionary) == VOCAB and sum(map(len, sentences)) == 40_000
    assert all((s == dictionary.eos()).nonzero().tolist() == [[len(s) - 1]] for s in sentences)
    assert 18 < 40_000 / len(sentences) < 22
    counts = torch.bincount(torch.cat(sentences).long(), minlength=VOCAB).numpy()
    specials = dictionary.nspecial
    assert counts[specials:].tolist() == dictionary.count[specials:]
    p = 1 / (np.arange(1, 197) + 2.7) ** 1.1
    expected = counts[specials:].sum() * p / p.sum()
    # Pearson's statistic: mean 195, standard deviation about 20.
    assert ((counts[specials:] - expected) ** 2 / expected).sum() < 300


def test_the_same_seed_makes_the_same_data(zipf, tmp_path):
    for name, seed in (("same", "1"), ("other", "2")):
        flags = ["--vocab", str(VOCAB), "--tokens", "40000", "--seed", seed]
        data.main(["--out", str(tmp_path / name), *flags])
    assert machine.data_fingerprint(tmp_path / "same") == machine.data_fingerprint(zipf)
    assert machine.data_fingerprint(tmp_path / "other") != machine.data_fingerprint(zipf)


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


def test_the_clock_gives_all_time_to_a_phase(monkeypatch):
    clock = updates.Clock()
    now = iter([0.0, 1.0, 3.0, 3.5])
    monkeypatch.setattr(updates, "timer", lambda: next(now))
    clock.start()
    assert clock.during("backward", lambda x: x + 1)(1) == 2
    clock.switch("other")
    assert clock.seconds["backward"] == 2 and clock.seconds["other"] == 1.5
    assert sum(clock.seconds.values()) == 3.5


def test_the_exponent_is_that_of_a_power_law():
    law = [(v, 3.0 * v**0.7) for v in (10**4, 10**5, 10**6)]
    assert vocabulary.exponent([*law, (10**7, None)]) == pytest.approx(0.7)
    # Least squares: log10 of the cost is 0, 1, 0.5 at 4, 5, 6.
    uneven = [(10**4, 1.0), (10**5, 10.0), (10**6, 10**0.5)]
    assert vocabulary.exponent(uneven) == pytest.approx(0.25)
    assert vocabulary.exponent([(10**4, 1.0), (10**5, None)]) is None


def log_lines(updates, *others):
    head = "2026 | INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 9)"
    lines = [head, *others]
    for update in updates:
        stats = {"wpb": "40", "wps": str(update), "num_updates": str(update), "train_wall": "1"}
        lines.append(f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(stats)}")
    return "\n".join(lines)


def test_speed_leaves_out_the_first_intervals():
    found = vocabulary.read_speed(log_lines(range(5, 61, 5)), interval=5)
    seconds = sum(200 / update for update in range(15, 61, 5))
    assert found["words_per_second"] == pytest.approx(2000 / seconds)
    assert (found["slowest"], found["fastest"], found["updates"]) == (15, 60, 50)
    assert found["update_ms"] == pytest.approx(1000 * seconds / 50)


def test_a_training_without_memory_gives_the_reason():
    said = "2026 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA..."
    with pytest.raises(logs.UnreadableLog, match="Ran out of memory"):
        vocabulary.read_speed(log_lines([], said), interval=5)
    with pytest.raises(logs.UnreadableLog):
        vocabulary.read_speed(log_lines(range(5, 21, 5)), interval=5)


# ---------------------------------------------------------------- the command


run_process = processes.run


def or_dead(command, log, threads):
    """Run a process; the training of shared_nce dies."""
    if any(word.endswith("train.py") for word in command) and "shared_nce" in command:
        raise processes.CommandFailed("killed by signal 9")
    return run_process(command, log, threads)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Run a benchmark with a training that dies: (arguments, folder, exit status)."""
    out = tmp_path_factory.mktemp("benchmark")
    arguments = ["--out", str(out), "--device", "cpu", "--vocab", str(VOCAB), "--updates", "10"]
    arguments += ["--max-seconds", "1", "--sentences", "5"]
    arguments += ["--systems", "cross_entropy", "bnce", "bnce_sparse", "shared_nce"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", forks.Popen)
        patch.setattr(processes, "run", or_dead)
        return arguments, out, bench_vocab.main(arguments)


def runs_of(out):
    found = json.loads((out / "benchmark.json").read_text(encoding="utf-8"))
    return {run["system"]: run for run in found["runs"]}


def test_a_benchmark_has_every_number(benchmark):
    found = runs_of(benchmark[1])
    for name in ("cross_entropy", "bnce"):
        row = found[name]
        assert "failed" not in row
        for number in (
            "words_per_second",
            "words_per_processor_second",
            "phases_ms",
            "update_mib",
            "x_softmax",
        ):
            assert math.isfinite(row[number]) and row[number] > 0, number
        update = row["parts"]["update"]["value"]
        assert row["updates"] >= 10 and row["parts"]["train"]["plugin"]
        assert all(ms > 0 for ms in update["milliseconds"].values())
        # 2 x 2 layers of 4 x 200 x (200 + 200) and biases, embeddings and projection.
        weights = 2 * (4 * 200 * 402) + VOCAB * 401
        assert 0.95 < update["parameter_bytes"] / (4 * weights) < 1.05
        assert update["state_bytes"] == 0 and update["peak_bytes"] > update["parameter_bytes"]
    assert found["cross_entropy"]["x_softmax"] == 1 and found["bnce_sparse"]["x_dense"] > 0


def test_the_report_has_tables_a_picture_and_the_failed_run(benchmark):
    _, out, status = benchmark
    text = (out / "benchmark.md").read_text(encoding="utf-8")
    assert text.count("| bnce | 200 |") == 3
    if importlib.util.find_spec("matplotlib") is not None:
        assert (out / "benchmark.png").read_bytes().startswith(b"\x89PNG")
    dead = runs_of(out)["shared_nce"]
    assert status == 1 and set(dead["failed"]) == {"train"}
    assert dead["update_mib"] > 0 and "words_per_second" not in dead
    assert "| shared_nce | 200 | failed: killed by signal 9" in text


def test_a_second_call_makes_only_missing_runs(benchmark, tmp_path, monkeypatch, capsys):
    arguments, out, _ = benchmark
    copy = shutil.copytree(out, tmp_path / "copy")
    made = []

    def counted(command, log, threads):
        made.append(log.name)
        return run_process(command, log, threads)

    monkeypatch.setattr(subprocess, "Popen", forks.Popen)
    monkeypatch.setattr(processes, "run", counted)
    assert bench_vocab.main([str(copy) if word == str(out) else word for word in arguments]) == 0
    assert made == ["train.log"] and capsys.readouterr().out.count("taken from disk") == 3
    after = runs_of(copy)
    assert after["bnce"] == runs_of(out)["bnce"] and "failed" not in after["shared_nce"]


def test_a_slow_training_has_fewer_updates_and_growth_spans_the_sizes(tmp_path, monkeypatch):
    """With a process that only writes results: an update takes 60 ms per thousand types."""
    intervals = {}

    def pretend(command, log, threads):
        vocab = int(next(w for w in command if "/V" in w).split("/V")[1].split("-")[0])
        ms = 60 * vocab / 1000
        value = {"milliseconds": {}, "update_ms": ms, "peak_bytes": vocab, "parameter_bytes": 1}
        value.update(state_bytes=0, distinct_targets=3)
        if "--log-interval" in command:
            interval = int(command[command.index("--log-interval") + 1])
            intervals[vocab] = interval
            lines = log_lines(range(interval, 13 * interval, interval))
            log.write_text(lines.replace('"wps": "', '"wps": "1'), "utf-8")
        else:
            found = command[command.index("--out") + 1]
            log.parent.mkdir(parents=True, exist_ok=True)
            Path(found).write_text(json.dumps(value), "utf-8")
        return processes.Ended(0, 2**20, 1.0, (0.0, 0.0), 1.0)

    monkeypatch.setattr(processes, "run", pretend)
    for vocab in (1000, 10_000, 1_000_000):
        (tmp_path / "data" / f"V{vocab}-tokens400000").mkdir(parents=True)
    arguments = ["--out", str(tmp_path), "--device", "cpu", "--max-seconds", "24", "--systems"]
    arguments += ["bnce", "--vocab", "1000", "10000", "1000000"]
    assert bench_vocab.main(arguments) == 0
    assert intervals == {1000: 40, 10_000: 4, 1_000_000: 1}
    found = json.loads((tmp_path / "benchmark.json").read_text("utf-8"))["growth"]["bnce"]
    assert found["memory_growth"] == pytest.approx(1000) and found["speed_kept"] > 0


@pytest.mark.parametrize(
    "flags",
    [["--vocab", "10"], ["--systems", "softmax"], ["--updates", "3"], ["--sentences", "0"]],
)
def test_unusable_flags_are_named(tmp_path, capsys, flags):
    with pytest.raises(SystemExit) as end:
        bench_vocab.main(["--out", str(tmp_path / "o"), "--device", "cpu", *flags])
    assert end.value.code == 2 and flags[0] in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
