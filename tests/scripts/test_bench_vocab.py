"""scripts/bench_vocab.py: its data, its measures, what it makes of numbers, and the command."""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import bench_vocab
import forks
import numpy as np
import pytest
import torch
from experiments import growth, logs, machine, processes, vocabulary
from experiments.measures import data, meter, updates
from experiments.run import Outcome
from experiments.vocabulary import RECIPES, SYSTEMS, Benchmark, own_flags
from fairseq.data import Dictionary, data_utils
from tools import PLUGIN

ROOT = Path(__file__).resolve().parents[2]

VOCAB = 200


# ---------------------------------------------------------------- data


@pytest.fixture(scope="module")
def zipf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zipf") / "data"
    data.main(["--out", str(folder), "--vocab", str(VOCAB), "--tokens", "40000"])
    return folder


def tokens_of(folder, split="train"):
    dictionary = Dictionary.load(str(folder / "dict.txt"))
    dataset = data_utils.load_indexed_dataset(str(folder / split), dictionary)
    return dictionary, [dataset[item] for item in range(len(dataset))]


def test_fairseq_loads_the_data(zipf):
    dictionary, sentences = tokens_of(zipf)
    assert len(dictionary) == VOCAB
    assert sum(map(len, sentences)) == 40_000
    assert all((s == dictionary.eos()).nonzero().tolist() == [[len(s) - 1]] for s in sentences)
    assert 18 < 40_000 / len(sentences) < 22
    machine.check_data(zipf)


def test_words_follow_the_law_and_the_dictionary_counts_them(zipf):
    dictionary, sentences = tokens_of(zipf)
    counts = torch.bincount(torch.cat(sentences).long(), minlength=VOCAB).numpy()
    specials = dictionary.nspecial
    assert counts[specials:].tolist() == dictionary.count[specials:]
    assert [dictionary.index(f"w{rank}") for rank in (1, 2, 196)] == [4, 5, 199]
    words = counts[specials:].sum()
    p = 1 / (np.arange(1, 197) + 2.7) ** 1.1
    expected = words * p / p.sum()
    # Pearson's statistic: mean 195, standard deviation about 20.
    assert ((counts[specials:] - expected) ** 2 / expected).sum() < 300


def test_the_same_seed_makes_the_same_data(zipf, tmp_path):
    for name, seed in (("same", "1"), ("other", "2")):
        flags = ["--vocab", str(VOCAB), "--tokens", "40000", "--seed", seed]
        data.main(["--out", str(tmp_path / name), *flags])
    assert machine.data_fingerprint(tmp_path / "same") == machine.data_fingerprint(zipf)
    assert machine.data_fingerprint(tmp_path / "other") != machine.data_fingerprint(zipf)


# ---------------------------------------------------------------- measures


def test_the_peak_counts_what_is_held_at_once_in_the_backward_pass_too():
    weight = torch.randn(1000, 1000, requires_grad=True)
    piece = 4 * 1000 * 1000

    def update():
        for _ in range(3):
            torch.empty(1000, 1000)  # one after the other
        (weight * 2).square().sum().backward()
        weight.grad = None

    # The doubled weight, and on the way back its gradient and what that is made from.
    assert 2 * piece < meter.peak_bytes(update, cuda=False) < 5 * piece
    assert meter.peak_bytes(lambda: None, cuda=False) == 0


@pytest.mark.parametrize("most, least, expected", [(3, 1, 3), (5, 2, 2)])
def test_repeat_stops_by_count_or_time_but_not_too_soon(most, least, expected):
    seconds = 60 if expected == most else 0
    assert meter.repeat(lambda: 7, most, seconds, least) == [7] * expected


def test_the_clock_gives_all_time_to_a_phase(monkeypatch):
    clock = updates.Clock()
    now = iter([0.0, 1.0, 3.0, 3.5])
    monkeypatch.setattr(updates, "timer", lambda: next(now))
    clock.start()
    assert clock.during("backward", lambda x: x + 1)(1) == 2
    clock.switch("other")
    assert clock.seconds["backward"] == 2 and clock.seconds["other"] == 1.5
    assert sum(clock.seconds.values()) == 3.5


# ---------------------------------------------------------------- numbers


def test_exponent_is_that_of_a_power_law():
    law = [(v, 3.0 * v**0.7) for v in (10**4, 10**5, 10**6)]
    assert growth.exponent(law) == pytest.approx(0.7)
    # Least squares: log10 of the cost is 0, 1, 0.5 at 4, 5, 6.
    uneven = [(10**4, 1.0), (10**5, 10.0), (10**6, 10**0.5)]
    assert growth.exponent(uneven) == pytest.approx(0.25)
    assert growth.exponent([*law, (10**7, None)]) == pytest.approx(0.7)
    assert growth.exponent([(10**4, 1.0), (10**5, None)]) is None


def outcome(name, vocab, speed, peak=2**20):
    update = {"milliseconds": {}, "update_ms": 1.0, "peak_bytes": peak, "parameter_bytes": 0}
    update.update(state_bytes=0, distinct_targets=3)
    train = {"words_per_second": speed, "update_ms": 4e5 / speed}
    ended = {"peak_bytes": 2**20}
    parts = {"update": {"value": update}, "train": {"value": train, "ended": ended}}
    return Outcome(SYSTEMS[name], vocab, parts=parts)


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


def test_a_training_that_went_without_memory_is_told():
    said = "2026 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA..."
    with pytest.raises(logs.UnreadableLog, match="Ran out of memory"):
        vocabulary.read_speed(log_lines([], said), interval=5)
    with pytest.raises(logs.UnreadableLog, match="required 10 timed intervals.*got 2"):
        vocabulary.read_speed(log_lines(range(5, 21, 5)), interval=5)


# ---------------------------------------------------------------- runs


def settings(out, **others):
    chosen = {"updates": 10, "seconds": 1, "device": "cpu", "device_name": "a processor", **others}
    chosen = {"recipe": RECIPES["lstm200"], **chosen}
    return vocabulary.Settings(out=out, plugin=Path(PLUGIN), **chosen)


def test_what_changes_a_result_is_another_run(tmp_path):
    system = SYSTEMS["bnce"]
    here = Benchmark(settings(tmp_path), system, VOCAB)
    others = [Benchmark(settings(tmp_path), SYSTEMS["bnce_sparse"], VOCAB)]
    others += [
        Benchmark(settings(tmp_path, **other), system, VOCAB)
        for other in (
            {"updates": 20},
            {"threads": 2},
            {"device_name": "another"},
            {"recipe": RECIPES["lstm200"].with_sentences(5)},
        )
    ]
    assert len({here.folder, *(other.folder for other in others)}) == 6
    assert Benchmark(settings(tmp_path, parts=("train",)), system, VOCAB).folder == here.folder


@pytest.mark.parametrize("update_ms, interval", [(1.0, 40), (1000.0, 2), (60_000.0, 1)])
def test_a_slow_training_has_fewer_updates(tmp_path, update_ms, interval):
    found = Benchmark(settings(tmp_path, updates=400, seconds=20), SYSTEMS["bnce"], VOCAB)
    assert found._interval() == 1
    found._stored["update"] = {"value": {"update_ms": update_ms}}
    assert found._interval() == interval


def test_a_training_is_timed_by_how_long_an_update_takes_whatever_the_order(tmp_path):
    """And anew where it was timed by fewer."""
    run = Benchmark(settings(tmp_path, parts=("train", "update"), updates=400), SYSTEMS["bnce"], 9)
    parts = iter(run.parts())
    assert next(parts)[:2] == ("update", None)
    run._stored["update"] = {"value": {"update_ms": 1.0}}
    assert next(parts)[:2] == ("train", 40)


def test_flags_follow_system_recipe_and_vocabulary():
    lstm, transformer = RECIPES["lstm200"], RECIPES["transformer"]
    flags = own_flags(SYSTEMS["bnce_sparse"], transformer, 1000)
    assert flags == [
        "--criterion",
        "bnce",
        "--optimizer",
        "lazy_adam",
        "--row-sparse",
        "--log-z",
        "6.9",
    ]
    assert "--row-sparse" not in own_flags(SYSTEMS["bnce"], lstm, 1000)
    assert "--log-z" not in own_flags(SYSTEMS["bnce"], lstm, 1000)
    for vocab, cutoff in ((200, "40"), (60_000, "2000,10000")):
        assert cutoff in own_flags(SYSTEMS["adaptive_loss"], lstm, vocab)


# ---------------------------------------------------------------- the command


run_process = processes.run


def or_dead(command, log, threads):
    if any(word.endswith("train.py") for word in command) and "shared_nce" in command:
        raise processes.CommandFailed("killed by signal 9 (see train.log)")
    return run_process(command, log, threads)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """A benchmark of which one training dies: (arguments, folder, exit status)."""
    out = tmp_path_factory.mktemp("benchmark")
    arguments = ["--out", str(out), "--device", "cpu", "--vocab", str(VOCAB), "--updates", "10"]
    arguments += ["--max-seconds", "1", "--systems", "cross_entropy", "bnce", "shared_nce"]
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
    assert found["cross_entropy"]["x_softmax"] == 1


def test_a_benchmark_is_written_as_tables_and_picture(benchmark):
    text = (benchmark[1] / "benchmark.md").read_text(encoding="utf-8")
    for title in ("Training", "Where an update's time goes", "Memory"):
        assert f"## {title}" in text
    assert text.count("| bnce | 200 |") == 3
    if importlib.util.find_spec("matplotlib") is not None:
        assert (benchmark[1] / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_a_dead_run_is_reported_and_its_other_parts_are_kept(benchmark):
    _, out, status = benchmark
    assert status == 1
    dead = runs_of(out)["shared_nce"]
    assert dead["failed"] == {"train": "killed by signal 9 (see train.log)"}
    assert dead["update_mib"] > 0 and "words_per_second" not in dead
    text = (out / "benchmark.md").read_text(encoding="utf-8")
    assert "| shared_nce | 200 | failed: killed by signal 9" in text
    assert "- shared_nce V=200: train failed: killed by signal 9" in text


@pytest.fixture
def unchanged(benchmark, tmp_path):
    """What a test makes of the benchmark's folder is gone afterwards."""
    kept = shutil.copytree(benchmark[1], tmp_path / "kept")
    yield benchmark
    shutil.rmtree(benchmark[1])
    shutil.copytree(kept, benchmark[1])


def test_a_second_call_makes_only_what_is_missing(unchanged, monkeypatch, capsys):
    arguments, out, _ = unchanged
    made = []

    def counted(command, log, threads):
        made.append(log.name)
        return run_process(command, log, threads)

    monkeypatch.setattr(subprocess, "Popen", forks.Popen)
    monkeypatch.setattr(processes, "run", counted)
    before = runs_of(out)
    assert bench_vocab.main(arguments) == 0
    assert made == ["train.log"] and capsys.readouterr().out.count("taken from disk") == 2
    after = runs_of(out)
    assert after["bnce"] == before["bnce"] and "failed" not in after["shared_nce"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--vocab", "100", "100"], "--vocab: required each once"),
        (["--vocab", "10"], "required at least 50, got 10"),
        (["--systems", "softmax"], "invalid choice: 'softmax'"),
        (["--updates", "3"], "required at least 10, got 3"),
        (["--sentences", "0"], "required at least 1, got 0"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(tmp_path, capsys, arguments, message):
    try:
        status = bench_vocab.main(["--out", str(tmp_path / "o"), "--device", "cpu", *arguments])
    except SystemExit as end:
        status = end.code
    assert status == 2 and message in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.slow  # a process that forks nothing of ours
def test_the_command_itself_in_processes_of_its_own(tmp_path, zipf):
    """The parent imports no torch: Linux counts what it held as its children's peak."""
    out = settings(tmp_path).data(VOCAB)
    out.parent.mkdir()
    out.symlink_to(zipf)
    program = "import sys, bench_vocab; status = bench_vocab.main(sys.argv[1:]); "
    program += "print(sorted({'torch', 'numpy', 'fairseq'} & set(sys.modules))); exit(status)"
    command = [sys.executable, "-c", program, "--out", str(tmp_path), "--device", "cpu"]
    command += ["--vocab", str(VOCAB), "--updates", "10", "--max-seconds", "1"]
    command += ["--systems", "bnce_sparse", "--parts", "update", "--sentences", "5"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    printed = subprocess.check_output(command, env=env).decode("utf-8")
    row = runs_of(tmp_path)["bnce_sparse"]
    assert row["update_mib"] > 0 and "bnce_sparse V=200: done in" in printed
    assert "\n100 targets a batch." in printed
    # matplotlib, which draws at the end, imports numpy.
    assert set(re.findall(r"'(\w+)'", printed.splitlines()[-1])) <= {"numpy"}


def test_growth_over_the_vocabulary():
    ends = [
        outcome("bnce_sparse", 10**4, 9000.0),
        outcome("bnce_sparse", 10**6, 8100.0, 1.1 * 2**20),
    ]
    found = growth.growth(growth.rows(ends))["bnce_sparse"]
    assert (found["speed_kept"], found["memory_growth"]) == pytest.approx((0.9, 1.1))
    assert 0 < found["update_exponent"] < 0.05
