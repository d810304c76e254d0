"""Flags that do not fit: one message before any data are read, and no traceback."""

import argparse
import logging

import pytest
from architectures import SEQ2SEQ
from fairseq import criterions, tasks
from tools import LSTM, PLUGIN, build, train

BNCE = [*LSTM, "--criterion", "bnce"]
SHARE = ["--criterion", "self_norm_softmax", "--self-norm-rate", "0.5"]


def problems(data, *flags, **parts):
    """The flags that are wrong in a training."""
    cfg, task, _ = build(data, *flags)
    for name, values in parts.items():
        for flag, value in values.items():
            cfg[name][flag[2:].replace("-", "_")] = value
    try:
        task.build_criterion(cfg.criterion)
    except ValueError as error:
        assert not isinstance(error, SystemExit)
        lines = [line.strip() for line in str(error).splitlines()[1:]]
        return [line.split(":")[0] for line in lines if line.startswith("--")]
    return []


WRONG_VALUES = [
    ("bnce", "--log-z", "nan"),
    ("bnce", "--log-z", "automatic"),
    ("bnce", "--log-z", "7,6"),
    ("bnce", "--noise-samples", "-1"),
    ("bnce", "--bnce-group", "sentence"),
    ("bnce", "--bnce-group", "1"),
    ("bnce", "--valid-partition-rate", "1.5"),
    ("shared_nce", "--noise-samples", "0"),
    ("shared_nce", "--noise-samples-by-epoch", "3,0"),
    ("bnce", "--noise-samples-by-epoch", "8,,9"),
    ("nce_regularized", "--self-norm-alpha-by-epoch", "1,-2"),
    ("nce_regularized", "--self-norm-rate", "0"),
    ("nce_regularized", "--self-norm-alpha", "-1"),
]


@pytest.mark.parametrize("criterion, flag, value", WRONG_VALUES)
def test_values(criterion, flag, value, corpus):
    part = {flag: value}
    assert problems(corpus, *LSTM, "--criterion", criterion, criterion=part) == [flag]


DECAY = ["--wd", "0.1", "--momentum", "0.9"]
TOGETHER = [
    (["bnce", "--gather-noise", "--bnce-group", "time"], ["--bnce-group"]),
    (["nce_regularized", "--gather-noise", "--nce-base", "nce"], ["--nce-base"]),
    (["nce_regularized", "--bnce-group", "5", "--nce-base", "nce"], ["--nce-base"]),
    (["bnce", "--self-norm-alpha", "0.5"], ["--self-norm-alpha"]),
    (["bnce", "--self-norm-alpha-by-epoch", "1,0.5"], ["--self-norm-alpha"]),
    (["bnce", "--objective", "ranking", "--self-norm-alpha", "0.5"], []),
    ([*SHARE[1:], "--self-norm-alpha", "0"], ["--self-norm-alpha"]),
    ([*SHARE[1:], "--self-norm-alpha-by-epoch", "1,0"], ["--self-norm-alpha"]),
    (["self_norm_softmax", "--self-norm-alpha", "0"], []),
    (["bnce", "--fp16"], ["--fp16"]),
    (["bnce", "--memory-efficient-fp16"], ["--memory-efficient-fp16"]),
    (["bnce", "--bf16"], []),
    (["bnce", "--row-sparse", "--bf16"], ["--bf16"]),
    (["bnce", "--row-sparse", "--memory-efficient-bf16"], []),
    (["bnce", "--row-sparse", "--store-ema"], ["--store-ema"]),
    (["bnce", "--row-sparse", "--use-bmuf"], ["--use-bmuf"]),
    (["bnce", "--row-sparse", *DECAY], ["--weight-decay", "--momentum"]),
    (["nce_regularized", "--row-sparse"], ["--row-sparse"]),
    (["shared_nce", "--noise", "uniform", "--noise-power", "0.75"], ["--noise-power"]),
    (["bnce", "--noise", "log-uniform", "--noise-power", "0.75"], ["--noise-power"]),
    (["bnce", "--noise", "log-uniform"], []),
]


@pytest.mark.parametrize("flags, wrong", TOGETHER)
def test_flags_that_do_not_go_together(flags, wrong, corpus):
    optimizer = ["--optimizer", "sparse_sgd"] if "--row-sparse" in flags else []
    assert problems(corpus, *LSTM, "--cpu", *optimizer, "--criterion", *flags) == wrong


METRICS = [
    *[("ppl", 0, 0), ("u_ppl", 0, 1), ("ppl", 0.5, 1), ("sigma_z", 1, 1)],
    *[("mu_z", 1, 0), ("ppl_se", 0.5, 0), ("nll_loss", 1, 0), ("accuracy", 1, 0)],
]


@pytest.mark.parametrize("metric, rate, fits", METRICS)
def test_the_best_checkpoint_has_the_least_of_a_number_that_is_logged(metric, rate, fits, corpus):
    part = {"criterion": {"--best-checkpoint-metric": metric, "--valid-partition-rate": rate}}
    assert problems(corpus, *BNCE, **part) == ([] if fits else ["--best-checkpoint-metric"])


def test_one_message_has_every_flag(corpus, tmp_path):
    flags = [*BNCE, "--row-sparse", "--optimizer", "adam", "--bf16", "--noise-samples", "-1"]
    flags += ["--best-checkpoint-metric", "sigma_z", "--valid-partition-rate", "0"]
    flags += ["--weight-decay", "0.01"]
    output = train(corpus, tmp_path / "run", *flags, check=False)
    assert "Traceback" not in output
    message = output[output.index("fairseq_bnce") :].rstrip().splitlines()
    wrong = ("bf16", "best-checkpoint-metric", "noise-samples", "optimizer", "weight-decay")
    for flag in wrong:
        assert len([line for line in message if line.startswith(f"  --{flag}: required ")]) == 1
    assert not list((tmp_path / "run").glob("*"))
    better = message[-1].split(": ")[1].split()
    assert problems(corpus, *BNCE, *better) == []


def test_values_by_epoch_go_before_the_single_one(corpus):
    flags = ["--criterion", "nce_regularized", "--self-norm-alpha-by-epoch", "3,2"]
    cfg, task, _ = build(corpus, *LSTM, *flags, "--self-norm-alpha", "0.5")
    criterion = task.build_criterion(cfg.criterion)
    found = [criterion.self_norm_alpha]
    for epoch in (1, 2, 9):
        criterion.begin_epoch(epoch)
        found.append(criterion.self_norm_alpha)
    assert found == [3, 3, 2, 2]


def test_another_task_does_not_obey_some_flags(pairs):
    flags = ["--criterion", "bnce", "--row-sparse", "--noise-samples-by-epoch", "3,0"]
    assert problems(pairs, *SEQ2SEQ, *flags) == ["--row-sparse", "--noise-samples-by-epoch"]
    assert problems(pairs, *SEQ2SEQ, "--criterion", "self_norm_softmax", "--score-squashing")


def test_trainings_flags_are_nothing_to_a_validation(pairs, corpus):
    """fairseq-validate builds the criterion, too; older versions took some flags."""
    flags = ["--criterion", "bnce", "--best-checkpoint-metric", "ppl"]
    rate, path = {"--valid-partition-rate": 0.0}, {"--path": "checkpoint_best.pt"}
    assert problems(pairs, *SEQ2SEQ, *flags, criterion=rate) == ["--best-checkpoint-metric"]
    assert problems(pairs, *SEQ2SEQ, *flags, criterion=rate, common_eval=path) == []
    cfg, task, _ = build(corpus, *LSTM, *SHARE, "--self-norm-alpha", "0")
    task = type(task).setup_task(cfg.task)
    task.build_model(cfg.model, from_checkpoint=True)
    assert task.build_criterion(cfg.criterion).options.self_norm_rate == 0.5


def test_a_task_and_a_criterion_of_a_namespace(corpus, tmp_path, caplog, monkeypatch):
    """Values of other parts of the configuration are fairseq's defaults."""
    monkeypatch.chdir(tmp_path)
    known = {"data": str(corpus), "tokens_per_sample": 16, "user_dir": PLUGIN}
    flags = argparse.Namespace(task="language_modeling", criterion="bnce", row_sparse=True, **known)
    task = tasks.setup_task(flags)
    assert (task.args.train_subset, task.args.seed) == ("train", 1)
    with caplog.at_level(logging.WARNING):
        criterion = criterions.build_criterion(flags, task)
        task.build_criterion(flags)
        task.state_dict()
    assert not criterion.options.sentence_avg
    assert "${" not in caplog.text
    assert not list(tmp_path.iterdir())
