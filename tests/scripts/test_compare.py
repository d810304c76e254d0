"""scripts/compare.py: how it reads logs, and the command on a tiny corpus."""

import argparse
import importlib.util
import json
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import forks
import pytest
import torch
from experiments import logs, machine, processes, recipes
from experiments.train import CLOCK
from fairseq import checkpoint_utils, utils
from tools import PLUGIN

ROOT = Path(__file__).resolve().parents[2]

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


def training_log(*attempts):
    head = "2026 | INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 9)"
    return "".join(
        processes.STARTED + "\n".join(["[]", head, *attempt]) + "\n" for attempt in attempts
    )


def resumed(update):
    return f"2026 | INFO | fairseq.trainer | Loaded checkpoint x.pt (epoch 2 @ {update} updates)"


def test_words_per_second_leave_out_warm_up_and_validation():
    lines = [train_line(50, wps=1), train_line(100, wps=1), train_line(150, wps=500)]
    lines += [valid_line(150), train_line(200, wps=2, wall=7), train_line(250, wps=250)]
    found = logs.read_training(training_log(lines)).words_per_second()
    # 2,000 words in 4 s and 2,000 in 8 s.
    assert found["value"] == pytest.approx(4000 / 12)
    assert found["steady"] and found["intervals"] == 2
    short = logs.read_training(training_log([train_line(50, wps=500)])).words_per_second()
    assert short == {"value": 500, "p90": 500, "steady": False, "intervals": 1}
    assert logs.read_training(training_log([])).words_per_second()["value"] is None


def test_the_curve_counts_training_time_only():
    lines = [train_line(50, wps=1000), train_line(100, wps=500), valid_line(100, 90)]
    lines += [train_line(150, wps=2, wall=7), valid_line(175, 80)]
    log = logs.read_training(training_log(lines))
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


def test_processor_time_leaves_out_start_validation_and_saving():
    lines = ["imports", "model", START, train_line(50), VALIDATION, valid_line(60), SAVING, SAVED]
    lines += [train_line(100), VALIDATION, valid_line(110)]
    log = logs.read_training(training_log(clocked(*lines)))
    assert [log.processor_seconds_at(u) for u in (50, 60, 100, 110)] == [0.5, 1.0, 2.0, 2.5]
    assert [point["processor_seconds"] for point in log.curve()] == [1.0, 2.5]
    first = clocked(START, train_line(50), VALIDATION, valid_line(50), train_line(100))
    second = clocked(resumed(50), START, train_line(100), VALIDATION, valid_line(100))
    log = logs.read_training(training_log(first, second))
    assert [log.processor_seconds_at(u) for u in (50, 100)] == [1.0, 2.0]


def test_repeated_updates_of_a_resumed_run_count_once():
    first = [train_line(update) for update in range(50, 301, 50)] + [valid_line(230, 90)]
    first.insert(4, valid_line(200, 95))
    second = [resumed(220), train_line(250, wps=3, wall=5), *map(train_line, (300, 350, 400))]
    log = logs.read_training(training_log(first, second, []))
    assert [i.last for i in log.intervals] == list(range(50, 401, 50))
    assert [v.update for v in log.validations] == [200]
    # The resumed attempt warms up again: until 320, so from 350 on.
    assert [i.last for i in log.intervals if i.steady] == [150, 200, 400]
    assert log.intervals[4].seconds == 5  # it holds the interruption


def test_scoring_is_read_from_the_loss_and_the_rate():
    lines = ["Evaluated 2,000 tokens in 0.0s (50000.00 tokens/s)"]
    lines += ["Loss (base 2): -3.0000, Perplexity: 0.12"]
    found = logs.read_scoring(lines)
    assert found == {"ppl": 0.125, "tokens": 2000, "seconds": pytest.approx(0.04)}
    assert logs.read_scoring([lines[0], "Loss (base 2): 2000, Perplexity: inf"])["ppl"] == math.inf


@pytest.mark.parametrize(
    "lines",
    [
        ["57 samples have invalid sizes and will be skipped", "Evaluated 0 tokens in 0.0s (0.0 t"],
        ["Evaluated 7 tokens in 1.0s (7.00 tokens/s)"],
    ],
)
def test_incomplete_scoring_is_refused(lines):
    with pytest.raises(logs.UnreadableLog):
        logs.read_scoring(lines)
    with pytest.raises(logs.UnreadableLog):
        logs.read_training("nothing\n")


# ---------------------------------------------------------------- recipes and processes


def test_the_adaptive_softmax_is_cut_by_the_size_of_the_vocabulary():
    cuts = {
        vocab: recipes.criterion_flags("adaptive_loss", vocab)[1]
        for vocab in (60, 10_000, 52_595, 1_000_000)
    }
    expected = {60: "12", 10_000: "2000", 52_595: "2000,10000", 1_000_000: "2000,10000,50000"}
    assert cuts == expected and recipes.criterion_flags("bnce", 60) == []


def test_every_seed_starts_with_another_criterion():
    a, b, c = recipes.variants(["a", "b", "c"], [])
    expected = [(a, 5), (b, 5), (c, 5), (b, 6), (c, 6), (a, 6)]
    assert recipes.order([a, b, c], [5, 6]) == expected


def test_a_process_is_measured(tmp_path):
    log = tmp_path / "log"
    # A small parent, as compare.py is: Linux counts memory that a child shares with it before exec.
    program = "import os; x = b'x' * 2**27; print(os.environ['OMP_NUM_THREADS'])"
    command = [sys.executable, "-c", program]
    parent = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from pathlib import Path; from experiments import processes\n"
        f"processes.run({command!r}, Path({str(log)!r}), threads=3)"
    )
    subprocess.run([sys.executable, "-c", parent], check=True)
    (ended,) = processes.attempts(log)
    assert ended.status == 0 and 2**27 < ended.peak_bytes < 2**29
    assert processes.last_attempt(log)[0] == "3"


@pytest.mark.parametrize("seen, first", [(None, "0"), ("2,3", "2"), ("", "")])
def test_a_process_has_one_gpu(seen, first, tmp_path, monkeypatch):
    """fairseq's commands take all GPUs that they see, and report one share of the data."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    show = "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    processes.run([sys.executable, "-c", show], tmp_path / "log", threads=1)
    assert processes.last_attempt(tmp_path / "log")[0] == repr(first)


@pytest.mark.parametrize(
    "program, reason",
    [
        ("raise ValueError('no such thing')", "ValueError: no such thing"),
        ("print('all is lost'); exit(3)", "all is lost"),
        ("exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    ],
)
def test_a_failed_process_gives_its_reason(tmp_path, program, reason):
    with pytest.raises(processes.CommandFailed, match=reason):
        processes.run([sys.executable, "-c", program], tmp_path / "l", threads=1)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["nowhere"], "nowhere/dict.txt"),
        (["CORPUS", "--criteria", "bnce", "bnce"], "--criteria"),
        (["CORPUS", "--criteria", "a/b=bnce"], "--criteria"),
        (["CORPUS", "--flags-for", "nce", "--lr 1"], "--flags-for"),
        (["CORPUS", "--questions", "q.csv"], "--answers"),
    ],
)
def test_unusable_arguments_are_named_before_any_work(corpus, tmp_path, arguments, named):
    arguments = [str(corpus) if word == "CORPUS" else word for word in arguments]
    arguments += [] if "--criteria" in arguments else ["--criteria", "bnce"]
    status, output = compare(*arguments, "--out", "o", cwd=str(tmp_path))
    assert status == 2 and named in output and "Traceback" not in output
    assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """Compare three criteria, and one that fails: (arguments, folder, exit status, output)."""
    out = tmp_path_factory.mktemp("compare")
    arguments = [corpus, "--out", out, "--criteria", "cross_entropy", "dead=bnce", "bnce"]
    arguments += ["adaptive_loss"]
    arguments += ["--flags-for", "dead", "--no-such-flag 3", "--profile-batches", "3"]
    arguments += ["--", *TINY, "--max-epoch", "1"]
    return (arguments, out, *compare(*arguments))


def runs_of(out):
    found = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    return {run["label"]: run for run in found["runs"]}


def test_a_comparison_has_every_number(compared):
    _, out, _, output = compared
    runs = runs_of(out)
    for label in ("cross_entropy", "bnce", "adaptive_loss"):
        assert "failed" not in runs[label], output
        numbers = {n: v for n, v in runs[label].items() if isinstance(v, float) and n != "log_z"}
        assert all(math.isfinite(value) and value for value in numbers.values()), numbers
        assert {"words_per_second", "processor_seconds", "peak_mib"} <= set(numbers)
        assert {"valid_ppl", "test_ppl", "exact_tokens_per_second"} <= set(numbers)
        plain = {"sigma_z", "output_layer_share"} <= set(numbers)
        assert plain == (label != "adaptive_loss")
        assert runs[label]["parameters"] > 0


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
    path = compared[1] / run["folder"] / "checkpoints" / "checkpoint_best.pt"
    utils.import_user_module(argparse.Namespace(user_dir=PLUGIN))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    task.load_dataset("valid")
    nll, tokens, model = 0.0, 0, model.eval()
    for block in task.dataset("valid"):
        with torch.no_grad():
            features = model(block["source"][None])[0]
            log_probs = model.decoder.adaptive_softmax.get_log_prob(features, None)[0]
        assert torch.allclose(log_probs.exp().sum(-1), torch.ones(len(log_probs)))
        nll -= log_probs.gather(1, block["target"][:, None]).sum().item()
        tokens += len(block["target"])
    assert run["valid_ppl"] == pytest.approx(math.exp(nll / tokens), rel=1e-3)
    assert run["train"]["curve"][-1]["ppl"] <= run["valid_ppl"]


def test_fairseqs_own_criteria_have_no_unnormalised_scores(compared):
    for label in ("cross_entropy", "adaptive_loss"):
        run = runs_of(compared[1])[label]
        assert set(run["score"]["test"]) == {"exact"}
        assert run["unnormalised_tokens_per_second"] is None and "test_u_ppl" not in run


def test_only_train_reports_the_logs(compared, tmp_path):
    arguments, out, _, _ = compared
    shutil.copytree(out, tmp_path / "out")
    arguments = [tmp_path / "out" if word == out else word for word in arguments]
    for stored in (tmp_path / "out").glob("runs/*/result.json"):
        trained = {"train": json.loads(stored.read_text(encoding="utf-8"))["train"]}
        stored.write_text(json.dumps(trained), encoding="utf-8")
    here = arguments.index("--")
    status, output = compare(*arguments[:here], "--only-train", *arguments[here:])
    runs = runs_of(tmp_path / "out")
    assert status == 1 and "seed 1: score" not in output
    for label in ("cross_entropy", "adaptive_loss", "bnce"):
        assert runs[label]["valid_ppl"] == runs[label]["train"]["curve"][-1]["ppl"]
        assert "score" not in runs[label] and "test_ppl" not in runs[label]
    assert "## Scoring" not in (tmp_path / "out" / "comparison.md").read_text(encoding="utf-8")


def test_the_report_has_tables_a_picture_and_failed_runs(compared):
    _, out, status, output = compared
    text = (out / "comparison.md").read_text(encoding="utf-8")
    assert text.count("| bnce |") == 4 and text.count("| cross_entropy |") == 4
    if importlib.util.find_spec("matplotlib") is None:
        assert "matplotlib" in output
    else:
        assert (out / "validation.png").read_bytes().startswith(b"\x89PNG")
    assert status == 1 and "--no-such-flag" in runs_of(out)["dead"]["failed"]
    assert "| dead | failed: " in text and "- dead seed 1: failed: " in text


def test_a_second_call_trains_nothing_again(compared):
    arguments, out, _, _ = compared
    logs_before = {path: path.stat().st_size for path in out.glob("runs/*bnce-seed*/*.log")}
    before = runs_of(out)
    status, output = compare(*arguments)
    assert status == 1 and output.count("taken from disk") == 3
    assert runs_of(out)["bnce"] == before["bnce"]
    assert {path: path.stat().st_size for path in logs_before} == logs_before != {}


def test_a_run_that_lost_its_result_resumes_from_its_checkpoint(compared, tmp_path):
    arguments, out, _, _ = compared
    copy = shutil.copytree(out, tmp_path / "out")
    next(copy.glob("runs/bnce-seed1*/result.json")).unlink()
    compare(*(copy if word == out else word for word in arguments))
    before, after = runs_of(out)["bnce"], runs_of(copy)["bnce"]
    assert len(after["train"]["attempts"]) == 2
    assert after["updates"] == before["updates"] and after["test_ppl"] == before["test_ppl"]


def test_seeds_are_averaged_and_other_flags_make_other_runs(corpus, tmp_path):
    arguments = [
        corpus,
        "--out",
        tmp_path,
        "--criteria",
        "bnce",
        "--only-train",
        "--seeds",
        "1",
        "2",
    ]
    for flags in ([], ["--flags-for", "bnce", "--log-z 9"]):
        status, output = compare(*arguments, *flags, "--", *TINY, "--max-epoch", "1")
        assert status == 0, output
    assert len(list(tmp_path.glob("runs/*"))) == 4
    found = json.loads((tmp_path / "comparison.json").read_text("utf-8"))
    first, second = (run["valid_ppl"] for run in found["runs"])
    cell = found["summary"]["bnce"]["valid_ppl"]
    assert cell["count"] == 2 and cell["mean"] == pytest.approx((first + second) / 2)
    assert cell["deviation"] == pytest.approx(abs(first - second) / math.sqrt(2))


def test_a_fingerprint_is_of_the_content(corpus, tmp_path):
    copy = shutil.copytree(corpus, tmp_path / "copy")
    assert machine.data_fingerprint(copy) == machine.data_fingerprint(corpus)
    with (copy / "test.bin").open("r+b") as stream:
        stream.write(b"\x09")
    assert machine.data_fingerprint(copy) != machine.data_fingerprint(corpus)
