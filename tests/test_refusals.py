"""Bad input, as a user meets it in the terminal: the error names the thing and the remedy."""

import re
import shutil
from contextlib import nullcontext

import pytest
from architectures import LSTM_SEQ2SEQ, SEQ2SEQ
from tools import (
    LSTM,
    TRANSFORMER,
    build,
    evaluate,
    first_batch,
    refused,
    run,
    set_flag,
    train,
    write_lines,
)

BNCE = [*LSTM, "--criterion", "bnce"]
BY_EPOCH = ["--self-norm-alpha-by-epoch", "3,2"]


def copy(corpus, tmp_path):
    return shutil.copytree(corpus, tmp_path / "data")


@pytest.mark.parametrize(
    "criterion, flag, value",
    [
        ("bnce", "--log-z", "nan"),
        ("bnce", "--log-z", "automatic"),
        ("bnce", "--noise-samples", "-1"),
        ("bnce", "--noise-power", "-0.5"),
        ("bnce", "--bnce-group", "sentence"),
        ("bnce", "--bnce-group", "1"),
        ("bnce", "--bnce-group", "²"),
        ("bnce", "--bnce-group", "٣"),
        ("bnce", "--bnce-group", str(10**20)),
        ("bnce", "--bnce-group", "1000001"),
        ("bnce", "--noise-samples", str(10**12)),
        ("nce", "--noise-samples", "1000001"),
        ("bnce", "--noise-samples-by-epoch", f"8,{10**12}"),
        ("bnce", "--noise-samples-by-epoch", "8,1000001"),
        ("bnce", "--noise-samples-by-epoch", "8,²"),
        ("bnce", "--valid-partition-rate", "1.5"),
        ("shared_nce", "--noise-samples", "0"),
        ("shared_nce", "--noise-samples-by-epoch", "0"),
        ("sampled_bce", "--noise-samples", "0"),
        ("bnce", "--noise-samples-by-epoch", "8,,9"),
        ("bnce", "--noise-samples-by-epoch", "8,-9"),
        ("self_norm_softmax", "--self-norm-alpha-by-epoch", "1,"),
        ("nce_regularized", "--self-norm-alpha-by-epoch", "1,-2"),
        ("self_norm_softmax", "--self-norm-alpha-by-epoch", "inf"),
        ("nce_regularized", "--self-norm-rate", "0"),
        ("nce_regularized", "--self-norm-rate", "1.01"),
        ("nce_regularized", "--self-norm-alpha", "-1"),
    ],
)
def test_flags(criterion, flag, value, corpus):
    """What fairseq-train does up to the criterion."""
    cfg, task, _ = build(corpus, *LSTM, "--criterion", criterion)
    set_flag(cfg.criterion, flag, value)
    with pytest.raises(ValueError, match=f"{flag}: required"):
        task.build_criterion(cfg.criterion)


@pytest.mark.modern
def test_draws_by_epoch(corpus):
    def criterion(name, *flags):
        cfg, task, _ = build(corpus, *LSTM, "--criterion", name, *flags)
        return task.build_criterion(cfg.criterion)

    by_epoch = ["--noise-samples-by-epoch", "3,0"]
    with pytest.raises(ValueError, match="--noise-samples: required"):
        criterion("bnce", "--noise-samples", "5", *by_epoch)
    with pytest.raises(ValueError, match="--noise-samples-by-epoch: required"):
        criterion("shared_nce", *by_epoch)


@pytest.mark.parametrize(
    "name, flag, values",
    [
        ("bnce", "--noise-samples-by-epoch", ["3,0"]),
        ("bnce", "--row-sparse", []),
        ("self_norm_softmax", "--self-norm-alpha-by-epoch", ["3,0"]),
        ("self_norm_softmax", "--score-squashing", []),
    ],
)
def test_a_task_that_does_not_do_it(pairs, name, flag, values):
    cfg, task, _ = build(pairs, *SEQ2SEQ, "--criterion", name, flag, *values)
    required = f"{flag}: required --task language_modeling, got Transl"
    with pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)


def test_a_start_that_the_task_does_not_set(pairs, caplog):
    cfg, task, model = build(pairs, *LSTM_SEQ2SEQ, "--criterion", "bnce")
    task.build_criterion(cfg.criterion)(model.train(), first_batch(task))
    assert "--init-output-bias unigram needs the language_modeling task" in caplog.text


@pytest.mark.parametrize(
    "flags, required",
    [
        (["bnce", "--bnce-group", "time"], "--bnce-group: required 'batch' with --gather-noise"),
        (["nce_regularized", "--nce-base", "nce"], "--nce-base: required bnce with --bnce-group"),
    ],
)
def test_noise_of_other_ranks_is_the_whole_batchs(flags, required, corpus):
    cfg, task, _ = build(corpus, *LSTM, "--criterion", *flags, "--gather-noise")
    with pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)


def test_a_penalty_by_epoch_needs_one(corpus):
    cfg, task, _ = build(corpus, *BNCE, "--self-norm-alpha-by-epoch", "1,0.5")
    required = "--self-norm-alpha-by-epoch: required --objective ranking, .* got 'binary'"
    with pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)


@pytest.mark.parametrize(
    "criterion, alpha, other",
    [
        ("bnce --objective ranking", None, "0.5"),
        *((name, 1.0, "0.1") for name in ("nce_regularized", "self_norm_softmax")),
    ],
)
def test_a_penalty_by_epoch_is_the_only_one(criterion, alpha, other, corpus):
    flags = [*LSTM, "--criterion", *criterion.split(), *BY_EPOCH]
    cfg, task, _ = build(corpus, *flags)
    assert cfg.criterion.self_norm_alpha == alpha
    assert task.build_criterion(cfg.criterion).self_norm_alpha == 3
    cfg, task, _ = build(corpus, *flags, "--self-norm-alpha", other)
    required = f"--self-norm-alpha: required none beside --self-norm-alpha-by-epoch, got {other}"
    with pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)


@pytest.mark.parametrize(
    "penalty", [["--self-norm-alpha", "0"], ["--self-norm-alpha-by-epoch", "1,0"]]
)
@pytest.mark.parametrize("rate, fits", [("0.5", False), ("1", True)])
def test_a_likelihood_without_partition_functions_needs_the_penalty(rate, fits, penalty, corpus):
    """Without it the objective, log Z - m(w), has no lower bound."""
    flags = ["--criterion", "self_norm_softmax", "--self-norm-rate", rate, *penalty]
    cfg, task, _ = build(corpus, *LSTM, *flags)
    required = f"{penalty[0]}: required above 0 with --self-norm-rate below 1, got 0"
    with nullcontext() if fits else pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)


def test_a_bad_flag_ends_the_command(corpus, tmp_path):
    output = refused(corpus, tmp_path, *BNCE, "--log-z", "nan")
    assert "ValueError: --log-z: required a finite number or 'auto', got nan" in output


@pytest.mark.parametrize(
    "metric, rate, fits",
    [
        *(("ppl", "0", False), ("sigma_z", "0", False), ("mu_z", "0", False), ("u_ppl", "0", True)),
        *(("ppl", "0.5", True), ("ppl_se", "0.5", True), ("ppl_se", "1", False)),
        *(("ppl_se", "0", False), ("ppl", "1", True), ("loss", "0", True)),
        *(("nll_loss", "1", False), ("nll_loss --sentence-avg", "1", True)),
    ],
)
def test_the_best_checkpoint_is_by_what_is_logged(metric, rate, fits, corpus):
    flags = ["--valid-partition-rate", rate, "--best-checkpoint-metric", *metric.split()]
    cfg, task, _ = build(corpus, *BNCE, *flags)
    required = f"--best-checkpoint-metric: required what is logged under .*-rate {rate} .*, got"
    with nullcontext() if fits else pytest.raises(ValueError, match=f"{required} '{metric}'"):
        task.build_criterion(cfg.criterion)


@pytest.mark.parametrize("criterion", ["bnce", "nce_regularized"])
@pytest.mark.parametrize("flags", [["--noise", "uniform"], ["--noise-power", "0.75"]])
def test_noise_of_which_nothing_is_drawn(criterion, flags, corpus, caplog):
    for draws, count in ((["--noise-samples", "3"], 0), ([], 1)):
        cfg, task, _ = build(corpus, *LSTM, "--criterion", criterion, *flags, *draws)
        task.build_criterion(cfg.criterion)
        assert caplog.text.count("change nothing without --noise-samples") == count


def test_a_power_of_no_counts(corpus, caplog):
    flags = ["--criterion", "shared_nce", "--noise", "uniform", "--noise-power"]
    for power, count in (("1", 0), ("0.75", 1)):
        cfg, task, _ = build(corpus, *LSTM, *flags, power)
        task.build_criterion(cfg.criterion)
        assert caplog.text.count("--noise-power changes nothing with --noise uniform") == count


@pytest.mark.parametrize("alpha, fits", [("0.5", False), ("0.1", True)])
def test_a_penalty_that_the_objective_does_not_have(alpha, fits, corpus):
    """0.1 is in the checkpoints of before, under either objective."""
    cfg, task, _ = build(corpus, *BNCE, "--self-norm-alpha", alpha)
    message = "--self-norm-alpha: required --objective ranking, which has the penalty .* got 0.5"
    with nullcontext() if fits else pytest.raises(ValueError, match=message):
        criterion = task.build_criterion(cfg.criterion)
        assert criterion.normalises_itself
    cfg, task, _ = build(corpus, *BNCE, "--objective", "ranking")
    assert task.build_criterion(cfg.criterion).self_norm_alpha == 0.1


def test_what_concerns_training_is_nothing_to_a_validation(corpus):
    """fairseq-validate builds the criterion with its own flags in the place of the training's."""
    flags = ["--row-sparse", "--fp16", "--valid-partition-rate", "0"]
    cfg, task, _ = build(corpus, *BNCE, *flags, "--best-checkpoint-metric", "ppl")
    with pytest.raises(ValueError, match="--best-checkpoint-metric: required"):
        task.build_criterion(cfg.criterion)
    task = type(task).setup_task(cfg.task)
    task.build_model(cfg.model, from_checkpoint=True)
    assert task.build_criterion(cfg.criterion).row_sparse


@pytest.mark.parametrize(
    "flags", [["--self-norm-alpha", "0"], ["--self-norm-alpha", "2", *BY_EPOCH]]
)
def test_a_penalty_that_an_older_version_took_is_validated(flags, corpus):
    flags = ["--criterion", "self_norm_softmax", "--self-norm-rate", "0.5", *flags]
    cfg, task, _ = build(corpus, *LSTM, *flags)
    with pytest.raises(ValueError, match="--self-norm-alpha: required"):
        task.build_criterion(cfg.criterion)
    task = type(task).setup_task(cfg.task)
    task.build_model(cfg.model, from_checkpoint=True)
    assert task.build_criterion(cfg.criterion).self_norm_rate == 0.5


def test_an_architecture_that_knows_of_no_output_dictionary(corpus, tmp_path):
    output = refused(corpus, tmp_path, *BNCE, "--output-dictionary-size", "30")
    required = "required an architecture that predicts its 30 words (transformer_lm, rnn_lm)"
    assert f"--output-dictionary-size: {required}, got LSTMDecoder, which predicts" in output


def test_missing_data(tmp_path):
    output = refused(tmp_path / "nowhere", tmp_path, *BNCE)
    assert "nowhere': required a folder made by fairseq-preprocess" in output
    (tmp_path / "empty").mkdir()
    assert "got one without dict.txt" in refused(tmp_path / "empty", tmp_path, *BNCE)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_missing_split(split, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    for path in data.glob(f"{split}.*"):
        path.unlink()
    output = refused(data, tmp_path, *BNCE)
    assert re.search(rf"required binarised (training )?data.*{split}.*got none", output)


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize("part, required", [("bin", "bytes"), ("idx", "a binarised index")])
def test_damaged_data(split, part, required, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    path = data / f"{split}.{part}"
    path.write_bytes(path.read_bytes()[:100])
    output = refused(data, tmp_path, *BNCE)
    assert f"{split}.{part}: required" in output and required in output


def test_garbage_in_the_place_of_an_index(corpus, tmp_path):
    data = copy(corpus, tmp_path)
    (data / "valid.idx").write_bytes(b"not an index at all, but long enough to be one")
    assert "valid.idx: required a binarised index" in refused(data, tmp_path, *BNCE)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_dictionary_of_other_data(split, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    lines = (data / "dict.txt").read_text(encoding="utf-8").splitlines()
    write_lines(data / "dict.txt", lines[:30])
    small = tiny(tmp_path)
    if split == "valid":  # only the validation data have the words that are gone
        for part in ("bin", "idx"):
            shutil.copy(small / f"train.{part}", data / f"train.{part}")
    output = refused(data, tmp_path, *BNCE)
    required = "required word ids from 0 and below 34, the size of dict.txt, got id"
    assert f"{split}: {required}" in output


def tiny(tmp_path):
    write_lines(tmp_path / "tiny.txt", ["w0 w1 w0"] * 20)
    arguments = ["--only-source", "--trainpref", tmp_path / "tiny.txt"]
    run("fairseq_cli.preprocess", *arguments, "--destdir", tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_a_half_that_hydra_would_leave_out(half, corpus):
    """fairseq-train sets --fp16 beside --memory-efficient-fp16, fairseq-hydra-train does not."""
    cfg, task, _ = build(corpus, *BNCE)
    set_flag(cfg.criterion, f"--memory-efficient-{half}", True)
    required = f"memory-efficient-{half}: required --{half} .*common.{half}=true"
    with pytest.raises(ValueError, match=required):
        task.build_criterion(cfg.criterion)
    set_flag(cfg.criterion, f"--{half}", True)
    task.build_criterion(cfg.criterion)


def test_fully_sharded_data_parallel(corpus, tmp_path):
    output = refused(corpus, tmp_path, *BNCE, "--ddp-backend", "fully_sharded")
    assert "--ddp-backend: required pytorch_ddp or legacy_ddp" in output
    assert "got fully_sharded (FSDP)" in output


def test_ensemble(corpus):
    output = evaluate(corpus, "a.pt:b.pt", "--unnormalized", check=False)
    assert "--unnormalized: required one model, got an ensemble of 2" in re.sub(r"\s+", " ", output)


def test_unnormalized_adaptive_softmax(corpus, tmp_path):
    flags = [*TRANSFORMER, "--adaptive-softmax-cutoff", "10,20", "--criterion", "adaptive_loss"]
    flags += ["--ddp-backend", "legacy_ddp"]
    train(corpus, tmp_path, *flags)
    checkpoint = tmp_path / "checkpoint_last.pt"
    output = evaluate(corpus, checkpoint, "--unnormalized", "--log-z-shift", "0", check=False)
    assert "adaptive" in output and "Perplexity" not in output
    assert "Perplexity" in evaluate(corpus, checkpoint)  # fairseq's own way still works


@pytest.mark.parametrize("shift", ["often", "nan"])
def test_shift(shift, corpus):
    output = evaluate(corpus, "a.pt", "--unnormalized", "--log-z-shift", shift, check=False)
    assert "--log-z-shift: required 'checkpoint', 'none' or a finite number" in output
