"""scripts/compare.py: how it reads logs, and the command on a tiny corpus."""

import itertools
import json
import logging
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import forks
import pytest
from experiments import logs, processes, recipes, train

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
TINY = shlex.split(
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-hidden-size 16 --decoder-out-embed-dim 16 "
    "--lr 2 --batch-size 8 --tokens-per-sample 16 --validate-interval-updates 0 --log-interval 5"
)


def compare(*arguments, **kwargs):
    """Return the exit status and the output."""
    return forks.script("compare.py", *arguments, **kwargs)


# ---------------------------------------------------------------- clock and logs


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Read the log of a training in which every message, update and validation takes a second."""
    seconds = itertools.count()
    monkeypatch.setattr(train, "_now", lambda: [next(seconds)] * 2)
    clock, lines = train.Clock(), ["fairseq_cli.train | num. shared model params: 1,234 (num."]

    def say(name, stats):
        text = f"2026 | INFO | {name} | {json.dumps(stats)}"
        lines.append(clock.format(logging.makeLogRecord({"msg": text})))

    def update(number):
        trainer = SimpleNamespace(get_num_updates=lambda: number)
        clock.counting(lambda *_: None)(trainer, [{"ntokens": 40}])
        next(seconds)

    @clock.running(False)
    def validate():
        for _ in range(100):
            next(seconds)
        say("valid", {"valid_ppl": "90", "valid_num_updates": "1"})

    @clock.running(True)
    def training(last):
        for number in range(1, last + 1):
            update(number)
            if number % 50 == 0:
                say("train_inner", {"ppl": "3"})
                validate()

    def read(last):
        training(last)
        (tmp_path / "log").write_text("\n".join(lines), "utf-8")
        return logs.read_training(tmp_path / "log")

    return read


def test_words_and_training_time_leave_out_validation_and_warm_up(log):
    found = log(150)
    assert found.parameters == 1234
    times = [(point["update"], point["words"], point["ppl"]) for point in found.curve]
    assert times == [(50, 2000, 90), (100, 4000, 90), (150, 6000, 90)]
    for point in found.curve:
        assert point["seconds"] == point["processor_seconds"]
        assert point["seconds"] == pytest.approx(point["update"], abs=10)  # not 100 for each
    assert found.words_per_second() == pytest.approx(2000 / 50, rel=0.1)


def test_scoring_is_read_from_the_loss_and_the_rate():
    evaluated = "Evaluated 2,000 tokens in 0.0s (50000.00 tokens/s)"
    found = logs.read_scoring([evaluated, "Loss (base 2): -3.0000, Perplexity: 0.12"])
    assert found == {"ppl": 0.125, "tokens": 2000, "seconds": pytest.approx(0.04)}
    skipped = "57 samples have invalid sizes and will be skipped"
    for lines in ([skipped, evaluated, "Loss (base 2): 0.0, Perplexity: 1"], [evaluated]):
        with pytest.raises(processes.CommandFailed):
            logs.read_scoring(lines)


# ---------------------------------------------------------------- recipes and processes


def test_the_adaptive_softmax_is_cut_by_the_size_of_the_vocabulary():
    cuts = {60: "12", 10_000: "2000", 52_595: "2000,10000", 1_000_000: "2000,10000,50000"}
    for vocab, cut in cuts.items():
        assert recipes.criterion_flags("adaptive_loss", vocab)[1] == cut
    assert recipes.criterion_flags("bnce", 60) == []


def test_a_process_is_measured(tmp_path):
    """By a small parent, as compare.py is: Linux counts memory that a child shares with it."""
    program = "import os; x = b'x' * 2**27; print(os.environ['OMP_NUM_THREADS'])"
    program += "; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    log = tmp_path / "log"
    parent = f"import sys; sys.path.insert(0, {SCRIPTS!r})\n"
    parent += "from pathlib import Path; from experiments import processes\n"
    parent += f"ended = processes.run([sys.executable, '-c', {program!r}], Path({str(log)!r}), 3)\n"
    parent += "print(ended.peak_bytes)"
    command, env = [sys.executable, "-c", parent], {"CUDA_VISIBLE_DEVICES": "2,3"}
    done = subprocess.run(command, check=True, env=env, stdout=subprocess.PIPE)
    assert 2**27 < int(done.stdout) < 2**29
    # fairseq's commands take all GPUs that they see, and report one share of the data.
    assert processes.last_attempt(log)[:2] == ["3", "2"]


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """Compare three criteria, and one that fails: (arguments, folder, exit status, output)."""
    out = tmp_path_factory.mktemp("compare")
    arguments = [corpus, "--out", out, "--criteria", "cross_entropy", "dead=bnce", "bnce"]
    arguments += ["adaptive_loss", "--flags-for", "dead", "--no-such-flag 3", "--device", "cpu"]
    arguments += ["--profile-batches", "3", "--", *TINY, "--max-epoch", "1"]
    return (arguments, out, *compare(*arguments))


def runs_of(out):
    found = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    return {run["label"]: run for run in found["runs"]}


def test_a_comparison_has_every_number(compared):
    _, out, status, output = compared
    runs, text = runs_of(out), (out / "comparison.md").read_text(encoding="utf-8")
    for label in ("cross_entropy", "bnce", "adaptive_loss"):
        assert "failed" not in runs[label], output
        numbers = {n: v for n, v in runs[label].items() if isinstance(v, float) and n != "log_z"}
        assert all(math.isfinite(value) and value for value in numbers.values()), numbers
        assert {"words_per_second", "processor_seconds", "test_ppl", "criterion_ms"} <= set(numbers)
        assert ("sigma_z" in numbers) == (label != "adaptive_loss")
        assert runs[label]["parameters"] > 0 and text.count(f"| {label} |") == 4
    assert (out / "validation.png").read_bytes().startswith(b"\x89PNG")
    assert status == 1 and "--no-such-flag" in runs["dead"]["failed"]
    assert "runs/dead-seed1-" in text and "failed: " in text


def test_a_comparison_agrees_with_fairseqs_own_validation(compared):
    runs = runs_of(compared[1])
    for label in ("cross_entropy", "bnce"):
        logged = runs[label]["train"]["curve"][-1]
        assert runs[label]["valid_ppl"] == pytest.approx(logged["ppl"], rel=1e-3)
    run = runs["bnce"]
    shifted = run["valid_u_ppl"] * math.exp(run["mu_z"])
    assert run["valid_u_ppl_shifted"] == pytest.approx(shifted, rel=1e-3)
    assert run["mu_z"] == pytest.approx(logged["mu_z"], abs=1e-3)
    assert run["sigma_z"] == pytest.approx(logged["sigma_z"], abs=1e-3)
    assert run["valid_u_ppl"] == pytest.approx(logged["u_ppl"], rel=1e-3)


def test_an_adaptive_softmax_is_scored_exactly(compared):
    """fairseq's own loss is lower: in each tail it takes the second word for padding."""
    run = runs_of(compared[1])["adaptive_loss"]
    assert run["train"]["curve"][-1]["ppl"] <= run["valid_ppl"]
    assert set(run["score"]["test"]) == {"exact"} and "test_u_ppl" not in run


def test_a_second_call_trains_only_what_was_lost(compared, tmp_path):
    """Here the score of one run, and all results of another."""
    arguments, out, _, _ = compared
    copy = shutil.copytree(out, tmp_path / "out")
    next(copy.glob("runs/bnce-seed1*/result.json")).unlink()
    stored = next(copy.glob("runs/cross_entropy-seed1*/result.json"))
    trained = {"train": json.loads(stored.read_text(encoding="utf-8"))["train"]}
    stored.write_text(json.dumps(trained), encoding="utf-8")
    logs_before = {path: path.stat().st_size for path in copy.glob("runs/adaptive*/*.log")}
    here = arguments.index("--")
    before = [copy if word == out else word for word in arguments[:here]]
    _, output = compare(*before, "--only-train", *arguments[here:])
    assert output.count("seed1: train") == 2 and "seed1: score" not in output
    runs, first = runs_of(copy), runs_of(out)
    for label in ("cross_entropy", "bnce"):
        assert runs[label]["valid_ppl"] == runs[label]["train"]["curve"][-1]["ppl"]
        assert runs[label]["updates"] == first[label]["updates"] and "test_ppl" not in runs[label]
    assert {path: path.stat().st_size for path in logs_before} == logs_before != {}


def test_seeds_are_averaged_and_other_flags_make_other_runs(corpus, tmp_path):
    arguments = [corpus, "--out", tmp_path, "--criteria", "bnce", "--only-train"]
    for flags in (["--flags-for", "bnce", "--log-z 9"], ["--seeds", "1", "2"]):
        status, output = compare(*arguments, *flags, "--", *TINY, "--max-update", "3")
        assert status == 0, output
    found = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    assert len(list(tmp_path.glob("runs/*"))) == 3
    first, second = (run["valid_ppl"] for run in found["runs"])
    cell = found["summary"]["bnce"]["valid_ppl"]
    assert cell["count"] == 2 and cell["mean"] == pytest.approx((first + second) / 2)
    assert cell["deviation"] == pytest.approx(abs(first - second) / math.sqrt(2))
