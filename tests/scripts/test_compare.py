"""scripts/compare.py: how it reads logs, and the command on a tiny corpus."""

import json
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import forks
import pytest
from experiments import logs, processes, recipes
from experiments.train import CLOCK

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
TINY = shlex.split(
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-hidden-size 16 --decoder-out-embed-dim 16 "
    "--lr 2 --batch-size 8 --tokens-per-sample 16 --validate-interval-updates 0 --log-interval 5"
)


def compare(*arguments, **kwargs):
    """Return the exit status and the output."""
    return forks.script("compare.py", *arguments, **kwargs)


# ---------------------------------------------------------------- reading logs


def train_line(update, wps=400.0, wall=1):
    stats = {"wpb": "40", "wps": str(wps), "num_updates": str(update), "train_wall": str(wall)}
    return f"2026-01-01 00:00:00 | INFO | train_inner | {json.dumps(stats)}"


def valid_line(update, ppl=100.0):
    stats = {"valid_ppl": str(ppl), "valid_mu_z": "-0.1", "valid_num_updates": str(update)}
    return f"2026-01-01 00:00:00 | INFO | valid | {json.dumps(stats)}"


@pytest.fixture
def read(tmp_path):
    """Read the lines of a log."""

    def read_lines(lines):
        head = "2026 | INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 9)"
        (tmp_path / "log").write_text("\n".join([head, *lines]) + "\n", "utf-8")
        return logs.read_training(tmp_path / "log")

    return read_lines


def test_words_per_second_leave_out_warm_up_and_validation(read):
    lines = [train_line(50, wps=1), train_line(100, wps=1), train_line(150, wps=500)]
    lines += [valid_line(150), train_line(200, wps=2, wall=7), train_line(250, wps=250)]
    # 2,000 words in 4 s and 2,000 in 8 s.
    assert read(lines).words_per_second() == pytest.approx(4000 / 12)
    assert read([train_line(50, wps=500)]).words_per_second() == 500
    assert read([]).words_per_second() is None


def test_the_curve_counts_training_time_only(read):
    lines = [train_line(50, wps=1000), train_line(100, wps=500), valid_line(100, 90)]
    lines += [train_line(150, wps=2, wall=7), valid_line(175, 80)]
    log = read(lines)
    first, second = log.curve()
    assert first == {"update": 100, "seconds": pytest.approx(6), "ppl": 90, "mu_z": -0.1}
    # 25 updates past the last line, at the pace of its interval.
    assert second["seconds"] == pytest.approx(6 + 7 * 1.5)
    assert log.parameters == 1234


def clocked(*lines):
    """Return lines of a log, each after the processor time (0.5, 1, ...) that train.py writes."""
    return [part for i, line in enumerate(lines) for part in (f"{CLOCK}{(i + 1) / 2}", line)]


SAVING = "2026 | INFO | fairseq.checkpoint_utils | Preparing to save checkpoint"
SAVED = "2026 | INFO | fairseq.checkpoint_utils | Saved checkpoint x.pt"
VALIDATION = '2026 | INFO | fairseq_cli.train | begin validation on "valid" subset'
START = "2026 | INFO | fairseq_cli.train | Start iterating over samples"


def test_processor_time_leaves_out_start_validation_and_saving(read):
    lines = ["imports", "model", START, train_line(50), VALIDATION, valid_line(60), SAVING, SAVED]
    lines += [train_line(100), VALIDATION, valid_line(110)]
    log = read(clocked(*lines))
    assert log.processor == {50: 0.5, 60: 1.0, 100: 2.0, 110: 2.5}
    assert [point["processor_seconds"] for point in log.curve()] == [1.0, 2.5]


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


def test_every_seed_starts_with_another_criterion():
    a, b, c = recipes.variants(["a", "b", "c"], [])
    expected = [(a, 5), (b, 5), (c, 5), (b, 6), (c, 6), (a, 6)]
    assert recipes.order([a, b, c], [5, 6]) == expected


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


@pytest.mark.parametrize(
    "program, reason",
    [
        ("raise ValueError('no such thing')", "ValueError: no such thing"),
        ("print('all is lost'); exit(3)", "all is lost"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_a_failed_process_gives_its_reason(tmp_path, program, reason):
    with pytest.raises(processes.CommandFailed) as failed:
        processes.run([sys.executable, "-c", program], tmp_path / "l", threads=1)
    assert reason in str(failed.value)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["nowhere"], "nowhere/dict.txt"),
        (["CORPUS", "--flags-for", "nce", "--lr 1"], "--flags-for"),
        (["CORPUS", "--questions", "q.csv"], "q.csv"),
    ],
)
def test_unusable_arguments_are_named_before_any_work(corpus, tmp_path, arguments, named):
    arguments = [str(corpus) if word == "CORPUS" else word for word in arguments]
    status, output = compare(*arguments, "--out", "o", cwd=str(tmp_path))
    assert status == 2 and named in output and "Traceback" not in output
    assert not (tmp_path / "o").exists()


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
        assert {"words_per_second", "processor_seconds", "peak_mib"} <= set(numbers)
        assert {"valid_ppl", "test_ppl", "exact_tokens_per_second"} <= set(numbers)
        assert {"features_ms", "criterion_ms", "optimiser_ms"} <= set(numbers)
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
    for flags in (["--seeds", "1", "2"], ["--flags-for", "bnce", "--log-z 9"]):
        status, output = compare(*arguments, *flags, "--", *TINY, "--max-update", "3")
        assert status == 0, output
        if flags[0] == "--seeds":
            found = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    assert len(list(tmp_path.glob("runs/*"))) == 3
    first, second = (run["valid_ppl"] for run in found["runs"])
    cell = found["summary"]["bnce"]["valid_ppl"]
    assert cell["count"] == 2 and cell["mean"] == pytest.approx((first + second) / 2)
    assert cell["deviation"] == pytest.approx(abs(first - second) / math.sqrt(2))
