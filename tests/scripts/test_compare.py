"""scripts/compare.py: its parts on made-up logs, then the command itself on a tiny corpus."""

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
from experiments import command, comparison, logs, machine, processes, recipes
from experiments.run import Outcome
from experiments.tables import Cell
from experiments.train import CLOCK
from experiments.training import Settings, Training
from fairseq import checkpoint_utils, utils
from tools import PLUGIN

ROOT = Path(__file__).resolve().parents[2]

TINY = shlex.split(
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-hidden-size 16 --decoder-out-embed-dim 16 "
    "--lr 2 --batch-size 8 --tokens-per-sample 16 --validate-interval-updates 0 --log-interval 5"
)


def compare(*arguments, **kwargs):
    """(exit status, what it printed)"""
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


def test_p90_is_nearer_to_the_undisturbed_speed():
    speeds = [50, 60, 70, 400, 400, 400, 400, 400, 400, 400, 900]
    lines = [train_line(50 * (i + 3), wps) for i, wps in enumerate(speeds)]
    found = logs.read_training(training_log([train_line(100), *lines])).words_per_second()
    assert found["intervals"] == 11 and found["p90"] == 400 > found["value"]


def test_words_per_second_of_a_short_run_are_told_apart():
    log = logs.read_training(training_log([train_line(50, wps=500)]))
    found = log.words_per_second()
    assert found == {"value": 500, "p90": 500, "steady": False, "intervals": 1}
    assert logs.read_training(training_log([])).words_per_second()["value"] is None


def test_curve_counts_training_time_alone():
    lines = [train_line(50, wps=1000), train_line(100, wps=500), valid_line(100, 90)]
    lines += [train_line(150, wps=2, wall=7), valid_line(175, 80)]
    log = logs.read_training(training_log(lines))
    first, second = log.curve()
    assert first == {"update": 100, "seconds": pytest.approx(6), "ppl": 90, "mu_z": -0.1}
    # 25 updates past the last line, at the pace of its interval.
    assert second["seconds"] == pytest.approx(6 + 7 * 1.5)
    assert log.parameters == 1234


def clocked(*lines):
    """Lines of a log, each after the processor time (0.5, 1, 1.5, ...) that train.py writes."""
    return [part for i, line in enumerate(lines) for part in (f"{CLOCK}{(i + 1) / 2}", line)]


SAVING = "2026 | INFO | fairseq.checkpoint_utils | Preparing to save checkpoint"
SAVED = "2026 | INFO | fairseq.checkpoint_utils | Saved checkpoint x.pt"
VALIDATION = '2026 | INFO | fairseq_cli.train | begin validation on "valid" subset'
START = "2026 | INFO | fairseq_cli.train | Start iterating over samples"


def test_processor_time_leaves_out_start_validation_and_saving():
    lines = ["imports", "model", START, train_line(50), VALIDATION, valid_line(60), SAVING, SAVED]
    lines += [train_line(100), VALIDATION, valid_line(110)]
    log = logs.read_training(training_log(clocked(*lines)))
    # Half a second from each message to the next: start to 50 to validation, a breath before
    # saving, then from saving to 100 to validation.
    assert [log.processor_seconds_at(u) for u in (50, 60, 100, 110)] == [0.5, 1.0, 2.0, 2.5]
    assert [point["processor_seconds"] for point in log.curve()] == [1.0, 2.5]
    assert log.processor_seconds_at(70) is None
    assert log.words_at(100) == 40 * 100


def test_processor_time_of_a_continued_run_goes_on_from_its_checkpoint():
    first = clocked(START, train_line(50), VALIDATION, valid_line(50), train_line(100))
    second = clocked(resumed(50), START, train_line(100), VALIDATION, valid_line(100))
    log = logs.read_training(training_log(first, second))
    assert [log.processor_seconds_at(u) for u in (50, 100)] == [1.0, 2.0]


def test_what_a_continued_run_did_again_counts_once():
    first = [train_line(update) for update in range(50, 301, 50)] + [valid_line(230, 90)]
    first.insert(4, valid_line(200, 95))
    second = [resumed(220), train_line(250, wps=3, wall=5), *map(train_line, (300, 350, 400))]
    log = logs.read_training(training_log(first, second))
    assert [i.last for i in log.intervals] == list(range(50, 401, 50))
    assert [v.update for v in log.validations] == [200]
    # The resumed attempt warms up again: until 320, so from 350 on.
    assert [i.last for i in log.intervals if i.steady] == [150, 200, 400]
    assert log.intervals[4].seconds == 5  # it holds the interruption


def test_an_attempt_that_trained_nothing_takes_nothing_away():
    log = logs.read_training(training_log([train_line(50)], []))
    assert [i.last for i in log.intervals] == [50]


def test_a_log_without_training_is_refused():
    with pytest.raises(logs.UnreadableLog, match="num. shared model params"):
        logs.read_training("nothing\n")


def test_scoring_is_read_from_the_loss_and_the_rate():
    lines = ["Evaluated 2,000 tokens in 0.0s (50000.00 tokens/s)"]
    lines += ["Loss (base 2): -3.0000, Perplexity: 0.12"]
    found = logs.read_scoring(lines)
    assert found == {"ppl": 0.125, "tokens": 2000, "seconds": pytest.approx(0.04)}
    assert logs.read_scoring([lines[0], "Loss (base 2): 2000, Perplexity: inf"])["ppl"] == math.inf


def test_scoring_that_skipped_data_is_refused():
    skipped = "57 samples have invalid sizes and will be skipped, max_positions=(20,)"
    with pytest.raises(logs.UnreadableLog, match="skipped 57 blocks.*--tokens-per-sample"):
        logs.read_scoring([skipped, "Evaluated 0 tokens in 0.0s (0.00 tokens/s)"])
    with pytest.raises(logs.UnreadableLog, match="printed no"):
        logs.read_scoring(["Evaluated 7 tokens in 1.0s (7.00 tokens/s)"])


# ---------------------------------------------------------------- what is trained


def test_variants_have_labels_and_flags_of_their_own():
    found = recipes.variants(["bnce", "k9=shared_nce"], [("k9", ["--noise-samples", "9"])])
    assert found[0] == recipes.Variant("bnce", "bnce")
    assert found[1] == recipes.Variant("k9", "shared_nce", ("--noise-samples", "9"))


@pytest.mark.parametrize(
    "names, flags_for, message",
    [
        (["bnce", "bnce"], [], "each label once, got 'bnce' twice"),
        (["a/b"], [], "got 'a/b'"),
        (["a="], [], "got 'a='"),
        (["bnce"], [("nce", [])], "--flags-for: required one of bnce, got 'nce'"),
        (["bnce"], [("bnce", ["--seed=3"])], "--seed=3 is set by this script (that of the run)"),
    ],
)
def test_bad_variants_are_refused(names, flags_for, message):
    with pytest.raises(command.UsageError) as error:
        recipes.variants(names, flags_for)
    assert message in str(error.value)


def test_a_grid_has_every_variant_with_every_learning_rate():
    bnce, softmax = recipes.variants(["bnce", "cross_entropy"], [("bnce", ["--row-sparse"])])
    assert recipes.grid([bnce], []) == [bnce]
    found = recipes.grid([bnce, softmax], ["0.1", "0.2"])
    assert [one.label for one in found] == [
        "bnce@0.1",
        "bnce@0.2",
        "cross_entropy@0.1",
        "cross_entropy@0.2",
    ]
    assert found[1] == recipes.Variant("bnce@0.2", "bnce", ("--row-sparse", "--lr", "0.2"))


def test_the_adaptive_softmax_is_cut_by_the_size_of_the_vocabulary():
    cuts = {vocab: recipes.cutoffs(vocab) for vocab in (60, 10_000, 52_595, 1_000_000)}
    assert cuts == {
        60: [12],
        10_000: [2_000],
        52_595: [2_000, 10_000],
        1_000_000: [2_000, 10_000, 50_000],
    }
    assert recipes.criterion_flags("bnce", 60) == []
    flags = recipes.criterion_flags("adaptive_loss", 52_595)
    assert flags == shlex.split("--adaptive-softmax-cutoff 2000,10000 --ddp-backend legacy_ddp")


def test_flags_of_a_run_override_those_of_its_criterion(tmp_path):
    (tmp_path / "dict.txt").write_text("a 1\n" * 9_996, encoding="utf-8")
    here = settings(tmp_path, tmp_path, training=("--adaptive-softmax-cutoff", "99"))
    flags = Training(here, recipes.Variant("adaptive_loss", "adaptive_loss"), 1).flags
    first = flags.index("--adaptive-softmax-cutoff")
    assert flags[first + 1] == "2000" and flags[-3:] == ["99", "--seed", "1"]


def test_every_seed_starts_with_another_criterion():
    a, b, c = recipes.variants(["a", "b", "c"], [])
    expected = [(a, 5), (b, 5), (c, 5), (b, 6), (c, 6), (a, 6)]
    assert recipes.order([a, b, c], [5, 6]) == expected


def test_scoring_takes_its_blocks_from_training():
    flags = ["--tokens-per-sample", "20", "--lr", "1", "--sample-break-mode=eos"]
    expected = ["--tokens-per-sample", "35", "--sample-break-mode", "eos"]
    assert recipes.inherited([*flags, "--tokens-per-sample", "35"]) == expected


def settings(data, out, **others):
    chosen = {"training": tuple(TINY), "fingerprint": "f", "profile_batches": 0, **others}
    plugin, recipe = Path(PLUGIN), recipes.RECIPES["lstm200"]
    return Settings(data=data, out=out, plugin=plugin, recipe=recipe, **chosen)


def test_another_recipe_data_or_seed_is_another_run(tmp_path):
    variant = recipes.Variant("bnce", "bnce")
    here = settings(tmp_path, tmp_path)
    runs = [Training(here, variant, 1), Training(here, variant, 2)]
    runs += [Training(here, recipes.Variant("bnce", "bnce", ("--log-z", "9")), 1)]
    runs += [
        Training(settings(tmp_path, tmp_path, **other), variant, 1)
        for other in ({"training": ()}, {"fingerprint": "g"}, {"threads": 2})
    ]
    assert len({run.folder for run in runs}) == len(runs)
    moved = settings(tmp_path / "elsewhere", tmp_path)
    assert Training(moved, variant, 1).folder == runs[0].folder


def test_a_gpu_makes_another_run_which_is_not_told_to_stay_on_the_cpu(tmp_path):
    variant, gpu = recipes.Variant("bnce", "bnce"), {"device": "cuda", "device_name": "a GPU"}
    here = Training(settings(tmp_path, tmp_path), variant, 1)
    there, other = (
        Training(settings(tmp_path, tmp_path, **{**gpu, "device_name": name}), variant, 1)
        for name in ("a GPU", "another")
    )
    assert [flag for flag in here.flags if flag != "--cpu"] == there.flags != here.flags
    assert "--cpu" in here._scoring_flags() and "--cpu" not in there._scoring_flags()
    assert len({run.folder for run in (here, there, other)}) == 3


def test_what_was_measured_otherwise_is_not_taken_for_this(tmp_path, monkeypatch):
    """Other questions, or other flags of scoring, are asked anew; another plugin is named."""
    tables = [tmp_path / name for name in ("first.csv", "second.csv", "answers.csv")]
    for path in tables:
        path.write_text(path.name, encoding="utf-8")
    first, second, answers = tables
    variant = recipes.Variant("bnce", "bnce")

    def training(questions, **others):
        asked = settings(tmp_path, tmp_path, questions=(questions, answers), **others)
        return Training(asked, variant, 1)

    monkeypatch.setattr(Training, "_training", lambda _: {})  # what its log tells
    run = training(first)
    stored = {name: {"key": key, "value": {}} for name, key, _ in run.parts()}
    stored["score"]["key"][0] = stored["complete"]["key"][0] = "another plugin"
    stored["train"].update(plugin="p", hardware={}, date="2026-01-01")
    run.folder.mkdir(parents=True)
    (run.folder / "result.json").write_text(json.dumps(stored), encoding="utf-8")
    assert set(stored) == {"train", "score", "complete"}
    assert set(training(first).finished().parts) >= {"train", "complete"}
    assert "complete" not in training(second).finished().parts
    nothing_asked = Training(settings(tmp_path, tmp_path), variant, 1)
    assert "complete" in nothing_asked.finished().parts
    assert training(first, scoring=("--max-tokens", "9")).finished() is None
    same = {name: key for name, key, _ in training(first).parts()}
    other = {name: key for name, key, _ in training(second).parts()}
    assert [name for name in same if same[name] != other[name]] == ["complete"]
    monkeypatch.undo()
    assert training(first).finished() is None  # its log is gone


def test_data_fingerprint_is_of_the_content(corpus, tmp_path):
    for path in corpus.iterdir():
        if path.suffix in (".bin", ".idx", ".txt"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert machine.data_fingerprint(tmp_path) == machine.data_fingerprint(corpus)
    with (tmp_path / "test.bin").open("r+b") as stream:
        stream.write(b"\x09")
    assert machine.data_fingerprint(tmp_path) != machine.data_fingerprint(corpus)


# ---------------------------------------------------------------- processes


def test_a_process_is_measured(tmp_path):
    log = tmp_path / "log"
    # From a parent as small as compare.py: Linux counts what a child shares with it before exec.
    command = [sys.executable, "-c", "x = b'x' * 2**27; print(7)"]
    parent = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
        "from pathlib import Path; from experiments import processes\n"
        f"processes.run({command!r}, Path({str(log)!r}), threads=1)"
    )
    subprocess.run([sys.executable, "-c", parent], check=True)
    (ended,) = processes.attempts(log)
    assert ended.status == 0 and 2**27 < ended.peak_bytes < 2**29
    assert processes.last_attempt(log)[0] == "7"


def test_threads_reach_the_process(tmp_path):
    show = "import os; print(os.environ['OMP_NUM_THREADS'])"
    processes.run([sys.executable, "-c", show], tmp_path / "log", threads=3)
    assert processes.last_attempt(tmp_path / "log")[0] == "3"


@pytest.mark.parametrize("seen, first", [(None, "0"), ("2,3", "2"), ("", "")])
def test_a_process_has_one_gpu(seen, first, tmp_path, monkeypatch):
    """fairseq's commands take all that they see, and tell of one's share."""
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
        ("print('train.py: error: bad flag'); exit(2)", "train.py: error: bad flag"),
        ("print('all is lost'); exit(3)", "all is lost"),
        ("exit(3)", "exit status 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
        (
            "import os; print('MemoryError: x', flush=True); os.kill(os.getpid(), 9)",
            "killed by signal 9 after MemoryError: x",
        ),
    ],
)
def test_a_dead_process_says_why(tmp_path, program, reason):
    processes.run(
        [sys.executable, "-c", "print('OldError: of another attempt')"], tmp_path / "l", 1
    )
    with pytest.raises(processes.CommandFailed) as error:
        processes.run([sys.executable, "-c", program], tmp_path / "l", threads=1)
    assert str(error.value) == f"{reason} (see l)"


# ---------------------------------------------------------------- tables


def stages(speed, ppl=100.0):
    evaluation = {"ppl": ppl, "tokens": 1000, "seconds": 2.0}
    fast = {**evaluation, "seconds": 0.5}
    ways = {"exact": evaluation, "raw": fast, "shifted": fast}
    rate = {"value": speed, "p90": 2 * speed, "steady": True, "intervals": 3}
    attempt = {"status": 0, "peak_bytes": 2**21, "seconds": 3.0, "load": [0.5, 1.5]}
    train = {"words_per_second": rate, "seconds": 9.0, "updates": 20, "parameters": 7}
    train.update(peak_bytes=2**21, attempts=[attempt], curve=[], plugin="p", date="2026-01-01")
    train["hardware"] = {"processor": "a processor", "cores": 2}
    return {
        "train": train,
        "normaliser": {"log_z": 0.0, "mu_z": -0.1, "sigma_z": 0.3, "contexts": 9},
        "score": dict.fromkeys(("valid", "test"), ways),
        "versions": {"torch": "9.9"},
    }


def outcome(label, seed, stages=None, error=None):
    errors = {} if error is None else {"": error}
    variant = recipes.Variant(label, label)
    return Outcome(variant, seed, f"runs/{label}{seed}", stages or {}, errors)


def test_seeds_give_mean_and_deviation_and_ratios_by_seed():
    outcomes = [
        outcome("cross_entropy", 1, stages=stages(100.0)),
        outcome("cross_entropy", 2, stages=stages(50.0)),
        outcome("bnce", 1, stages=stages(300.0, 90.0)),
        outcome("bnce", 2, stages=stages(200.0, 110.0)),
    ]
    softmax, bnce = comparison.rows(outcomes)
    assert softmax.cells["ratio_to_softmax"].mean == 1
    assert bnce.cells["ratio_to_softmax_p90"].mean == 3.5
    assert bnce.cells["ratio_to_softmax"] == Cell(3.5, pytest.approx(math.sqrt(0.5)), 2)
    assert bnce.cells["test_ppl"].mean == pytest.approx(100)
    assert bnce.cells["scoring_ratio"].mean == pytest.approx(4)
    assert bnce.cells["exact_tokens_per_second"].mean == pytest.approx(500)


def test_failures_are_in_the_tables(tmp_path):
    outcomes = [
        outcome("bnce", 1, stages=stages(100.0, math.inf)),
        outcome("bnce", 2, error="lost"),
        outcome("nce", 1, error="a | b"),
        outcome("nce", 2, error="a | b"),
    ]
    comparison.write(outcomes, settings(tmp_path, tmp_path))
    text = (tmp_path / "comparison.md").read_text(encoding="utf-8")
    assert "| bnce (without seed 2) | inf |" in text
    assert "| nce | failed: a \\| b |" in text
    assert "- bnce seed 2: failed: lost, in runs/bnce2" in text
    found = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert found["summary"]["nce"] == {"failed": "a | b"}
    assert found["runs"][0]["test_ppl"] == "inf"


def test_other_sources_of_the_plugin_are_noted(tmp_path):
    other = stages(100.0)
    other["train"]["plugin"] = "q"
    found = comparison.rows([outcome("a", 1, stages=stages(1.0)), outcome("b", 1, stages=other)])
    text = "\n".join(comparison.markdown(found, settings(tmp_path, tmp_path)))
    assert "different sources of fairseq_bnce" in text


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere", "--out", "o"], "nowhere: required a folder made by fairseq-preprocess"),
        ([".", "--out", "o"], "got no dict.txt, train.bin"),
        (["CORPUS", "--out", "o", "--seeds", "1", "1"], "--seeds: required each seed once"),
        (
            ["CORPUS", "--out", "o", "--", "--save-dir", "x"],
            "after --: --save-dir is set by this script (a folder in --out)",
        ),
        (
            ["CORPUS", "--out", "o", "--eval-flags", "--path x"],
            "--eval-flags: --path is set by this script (the",
        ),
    ],
)
def test_what_cannot_be_done_is_said_at_once(corpus, tmp_path, arguments, message):
    arguments = [str(corpus) if word == "CORPUS" else word for word in arguments]
    status, output = compare(*arguments, cwd=str(tmp_path))
    assert status == 2 and message in output
    assert not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def compared(corpus, tmp_path_factory):
    """Three criteria and one that dies: (arguments, folder, exit status, output)."""
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


def test_an_adaptive_softmax_is_scored_with_all_that_it_gives_its_targets(compared):
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


def test_what_trains_no_constant_has_no_unnormalised_scores(compared):
    for label in ("cross_entropy", "adaptive_loss"):
        run = runs_of(compared[1])[label]
        assert set(run["score"]["test"]) == {"exact"}
        assert run["unnormalised_tokens_per_second"] is None and "test_u_ppl" not in run


def test_a_comparison_that_only_trains_tells_what_the_logs_do(compared, tmp_path):
    arguments, out, _, _ = compared
    shutil.copytree(out, tmp_path / "out")
    arguments = [tmp_path / "out" if word == out else word for word in arguments]
    for stored in (tmp_path / "out").glob("runs/*/result.json"):  # as if none had been scored
        trained = {"train": json.loads(stored.read_text(encoding="utf-8"))["train"]}
        stored.write_text(json.dumps(trained), encoding="utf-8")
    here = arguments.index("--")
    status, output = compare(*arguments[:here], "--only-train", *arguments[here:])
    runs = runs_of(tmp_path / "out")
    assert status == 1 and "seed 1: score" not in output  # the dead one is dead still
    for label in ("cross_entropy", "adaptive_loss", "bnce"):
        assert runs[label]["valid_ppl"] == runs[label]["train"]["curve"][-1]["ppl"]
        assert "score" not in runs[label] and "test_ppl" not in runs[label]
    assert "## Scoring" not in (tmp_path / "out" / "comparison.md").read_text(encoding="utf-8")


def test_a_comparison_is_written_as_tables_and_picture(compared):
    _, out, _, output = compared
    text = (out / "comparison.md").read_text(encoding="utf-8")
    for title in ("Perplexity", "Training", "Where an update's time goes", "Scoring"):
        assert f"## {title}" in text
    assert text.count("| bnce |") == 4 and text.count("| cross_entropy |") == 4
    if importlib.util.find_spec("matplotlib") is None:
        assert "validation.png: skipped, matplotlib is not installed" in output
    else:
        assert (out / "validation.png").read_bytes().startswith(b"\x89PNG")


def test_a_dead_run_is_reported_and_the_others_are_run(compared):
    _, out, status, output = compared
    assert status == 1
    assert "--no-such-flag" in runs_of(out)["dead"]["failed"]
    text = (out / "comparison.md").read_text(encoding="utf-8")
    assert "| dead | failed: " in text and "- dead seed 1: failed: " in text
    assert "dead seed 1: failed: " in output


def test_a_second_call_trains_nothing_again(compared):
    arguments, out, _, _ = compared
    logs_before = {path: path.stat().st_size for path in out.glob("runs/*bnce-seed*/*.log")}
    before = runs_of(out)
    status, output = compare(*arguments)
    assert status == 1 and output.count("taken from disk") == 3
    assert runs_of(out)["bnce"] == before["bnce"]
    assert {path: path.stat().st_size for path in logs_before} == logs_before != {}


def test_an_interrupted_training_goes_on_from_its_checkpoint(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", forks.Popen)
    two_epochs = settings(corpus, tmp_path, training=(*TINY, "--max-epoch", "2"))
    run = Training(two_epochs, recipes.Variant("bnce", "bnce"), 1)
    log = run.folder / "train.log"
    # As far as an interruption after the first epoch lets it come.
    processes.run([*run._train_command(), "--max-epoch", "1"], log, threads=1)
    run._train()
    found = run._training()
    assert "(epoch 2 @" in log.read_text(encoding="utf-8")
    assert len(found["attempts"]) == 2
    updates = [point["update"] for point in found["curve"]]
    assert len(updates) == 2 and updates[1] == 2 * updates[0] == found["updates"]


def test_a_lost_log_is_said(tmp_path):
    run = Training(settings(tmp_path, tmp_path), recipes.Variant("bnce", "bnce"), 1)
    with pytest.raises(logs.UnreadableLog, match="train.log: No such file"):
        run._training()
