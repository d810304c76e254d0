"""Flags that do not go together: one message before any data are read, and no traceback."""

import argparse
import logging

import pytest
from architectures import SEQ2SEQ
from fairseq import criterions, tasks
from tools import LSTM, PLUGIN, build, set_flag, train

BNCE = [*LSTM, "--criterion", "bnce"]
ROW_SPARSE = [*BNCE, "--row-sparse", "--optimizer", "sparse_sgd"]


def problems(data, *flags, **parts):
    """What is wrong with a training, one line a flag; none if nothing is."""
    cfg, task, _ = build(data, *flags)
    for name, values in parts.items():
        for flag, value in values.items():
            set_flag(cfg[name], flag, value)
    try:
        task.build_criterion(cfg.criterion)
    except ValueError as error:
        return [line.strip() for line in str(error).splitlines()[1:]]
    return []


def named(lines):
    return [line.split(":")[0] for line in lines]


def test_one_message_has_every_flag(corpus, tmp_path):
    flags = [*BNCE, "--row-sparse", "--optimizer", "adam", "--weight-decay", "0.01", "--fp16"]
    flags += ["--store-ema", "--best-checkpoint-metric", "sigma_z", "--valid-partition-rate", "0"]
    flags += ["--ddp-backend", "fully_sharded", "--noise-samples", "-1"]
    output = train(corpus, tmp_path / "run", *flags, check=False)
    assert "Traceback" not in output
    message = output[output.index("fairseq_bnce") :].splitlines()
    wrong = "optimizer weight-decay fp16 store-ema best-checkpoint-metric ddp-backend noise-samples"
    for flag in wrong.split():
        assert len([line for line in message if line.startswith(f"  --{flag}: required ")]) == 1
    assert not list((tmp_path / "run").glob("*"))


@pytest.mark.parametrize(
    "flags, wrong, remedy",
    [
        (["--optimizer", "adam"], ["--optimizer"], "lazy_adam"),
        (["--optimizer", "adagrad"], ["--optimizer"], "sparse_adagrad"),
        (["--optimizer", "sgd"], ["--optimizer"], "sparse_sgd"),
        (["--optimizer", "adafactor"], ["--optimizer"], "lazy_adam"),
        (["--fp16"], ["--fp16"], "--memory-efficient-fp16"),
        (["--bf16"], ["--bf16"], "--memory-efficient-bf16"),
        (["--use-bmuf"], ["--use-bmuf"], "leave it out"),
        (["--store-ema"], ["--store-ema"], "leave it out"),
        (["--momentum", "0.9"], ["--momentum"], "required 0"),
        (["--optimizer", "lazy_adam", "--wd", "0.1"], ["--weight-decay"], "required 0"),
        (["--optimizer", "sgd", "--wd", "0.1"], ["--optimizer", "--weight-decay"], "required 0"),
        ([], [], ""),
        (["--optimizer", "lazy_adam", "--memory-efficient-fp16"], [], ""),
        (["--optimizer", "rowwise_adagrad", "--amp"], [], ""),
    ],
)
def test_what_rows_alone_cannot_follow(flags, wrong, remedy, corpus):
    found = problems(corpus, *ROW_SPARSE, *flags)
    assert named(found) == wrong
    assert remedy in "".join(found)


def test_without_row_sparse_they_are_fine(corpus):
    flags = ["--optimizer", "adam", "--weight-decay", "0.01", "--store-ema"]
    assert problems(corpus, *BNCE, *flags, "--fp16") == []


def test_unused_parameters_are_only_looked_for_on_several_ranks(corpus):
    flag = {"--find-unused-parameters": True}
    assert problems(corpus, *BNCE, distributed_training=flag) == []
    ranks = {**flag, "--distributed-world-size": 2}
    assert named(problems(corpus, *BNCE, distributed_training=ranks)) == [
        "--find-unused-parameters"
    ]


def test_another_task_is_told_of_all_that_it_does_not_do(pairs):
    flags = ["--criterion", "bnce", "--row-sparse", "--noise-samples-by-epoch", "3,0"]
    found = problems(pairs, *SEQ2SEQ, *flags, "--optimizer", "sgd")
    assert named(found) == ["--row-sparse", "--noise-samples-by-epoch", "--optimizer"]
    assert "--task language_modeling, got TranslationTask" in found[0]


def test_a_validation_of_another_task_is_not(pairs):
    """fairseq-validate puts its own flags in the place of the training's, with its --path."""
    flags = ["--criterion", "bnce", "--best-checkpoint-metric", "ppl"]
    rate = {"--valid-partition-rate": 0.0}
    assert named(problems(pairs, *SEQ2SEQ, *flags, criterion=rate)) == ["--best-checkpoint-metric"]
    path = {"--path": "checkpoint_best.pt"}
    assert problems(pairs, *SEQ2SEQ, *flags, criterion=rate, common_eval=path) == []


def test_a_task_and_a_criterion_of_a_namespace(corpus, tmp_path, caplog, monkeypatch):
    """What they take from other parts of the configuration is as fairseq has it by default."""
    monkeypatch.chdir(tmp_path)
    known = {"data": str(corpus), "tokens_per_sample": 16, "user_dir": PLUGIN}
    flags = argparse.Namespace(task="language_modeling", criterion="bnce", row_sparse=True, **known)
    task = tasks.setup_task(flags)
    assert (task.args.train_subset, task.args.seed) == ("train", 1)
    with caplog.at_level(logging.WARNING):
        criterion = criterions.build_criterion(flags, task)
        task.build_criterion(flags)
        task.state_dict()
    assert not criterion.sentence_avg
    assert "${" not in caplog.text
    assert not list(tmp_path.iterdir())
