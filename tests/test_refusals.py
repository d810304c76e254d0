"""Bad input, as a user meets it in the terminal: the error names the thing and the remedy."""

import os
import random
import re
import shutil
import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from test_output_layer import SEQ2SEQ
from tools import (
    LSTM,
    TRANSFORMER,
    build,
    evaluate,
    first_batch,
    run,
    set_flag,
    train,
    write_lines,
)

from fairseq_bnce.errors import InputError
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.training import token_counts
from fairseq_bnce.training.token_counts import count_tokens, training_target_counts

BNCE = [*LSTM, "--criterion", "bnce"]
BY_EPOCH = ["--self-norm-alpha-by-epoch", "3,2"]


def copy(corpus, tmp_path):
    return shutil.copytree(corpus, tmp_path / "data")


def refused(data, tmp_path, *flags):
    """What fairseq-train prints, the run having failed before anything was saved."""
    output = train(data, tmp_path / "run", *flags, check=False)
    assert not list((tmp_path / "run").glob("*.pt"))
    return re.sub(r"\s+", " ", output)


@pytest.mark.parametrize(
    "criterion, flag, value, required",
    [
        ("bnce", "--log-z", "nan", "a finite number or 'auto'"),
        ("bnce", "--log-z", "automatic", "a finite number or 'auto'"),
        ("bnce", "--noise-samples", "-1", "at least 0"),
        ("bnce", "--noise-power", "-0.5", "a finite number of at least 0"),
        ("bnce", "--bnce-group", "sentence", "'batch', 'time' or a size"),
        ("bnce", "--bnce-group", "1", "a size of at least 2"),
        ("bnce", "--bnce-group", "²", "a size of at least 2"),
        ("bnce", "--bnce-group", "٣", "a size of at least 2"),
        ("bnce", "--bnce-group", str(10**20), "a size of at least 2, at most 1,000,000"),
        ("bnce", "--bnce-group", "1000001", "a size of at least 2, at most 1,000,000"),
        ("bnce", "--noise-samples", str(10**12), "at least 0 and at most 1,000,000"),
        ("nce", "--noise-samples", "1000001", "at least 0 and at most 1,000,000"),
        ("bnce", "--noise-samples-by-epoch", f"8,{10**12}", "at least 0 .* at most 1,000,000"),
        ("bnce", "--noise-samples-by-epoch", "8,1000001", "at least 0 .* at most 1,000,000"),
        ("bnce", "--noise-samples-by-epoch", "8,²", "numbers of at least 0 with commas"),
        ("bnce", "--valid-partition-rate", "1.5", "from 0 to 1"),
        ("shared_nce", "--noise-samples", "0", "at least 1"),
        ("shared_nce", "--noise-samples-by-epoch", "0", "at least 1"),
        ("sampled_bce", "--noise-samples", "0", "at least 1"),
        ("bnce", "--noise-samples-by-epoch", "8,,9", "numbers of at least 0 with commas"),
        ("bnce", "--noise-samples-by-epoch", "8,-9", "numbers of at least 0 with commas"),
        ("self_norm_softmax", "--self-norm-alpha-by-epoch", "1,", "finite numbers of at least 0"),
        ("nce_regularized", "--self-norm-alpha-by-epoch", "1,-2", "finite numbers of at least 0"),
        ("self_norm_softmax", "--self-norm-alpha-by-epoch", "inf", "finite numbers of at least 0"),
        ("nce_regularized", "--self-norm-rate", "0", "above 0 and at most 1"),
        ("nce_regularized", "--self-norm-rate", "1.01", "above 0 and at most 1"),
        ("nce_regularized", "--self-norm-alpha", "-1", "at least 0"),
    ],
)
def test_flags(criterion, flag, value, required, corpus):
    """What fairseq-train does up to the criterion."""
    cfg, task, _ = build(corpus, *LSTM, "--criterion", criterion)
    set_flag(cfg.criterion, flag, value)
    with pytest.raises(ValueError, match=rf"{flag}: required .*{required}.*, got .*{value}"):
        task.build_criterion(cfg.criterion)


@pytest.mark.modern
def test_draws_by_epoch(corpus):
    def criterion(name, *flags):
        cfg, task, _ = build(corpus, *LSTM, "--criterion", name, *flags)
        return task.build_criterion(cfg.criterion)

    by_epoch = ["--noise-samples-by-epoch", "3,0"]
    with pytest.raises(ValueError, match="--noise-samples: required none beside .*, got 5"):
        criterion("bnce", "--noise-samples", "5", *by_epoch)
    with pytest.raises(ValueError, match="--noise-samples-by-epoch: required at least 1 .*, got 0"):
        criterion("shared_nce", *by_epoch)


@pytest.mark.parametrize(
    "name, flag", [("bnce", "--noise-samples"), ("self_norm_softmax", "--self-norm-alpha")]
)
def test_a_task_that_does_not_tell_the_epoch(pairs, name, flag):
    flags = [*SEQ2SEQ, "--criterion", name, f"{flag}-by-epoch", "3,0"]
    cfg, task, model = build(pairs, *flags)
    criterion = task.build_criterion(cfg.criterion)
    required = f"{flag}-by-epoch: required --task language_modeling, got Transl"
    with pytest.raises(ValueError, match=required):
        criterion(model.train(), first_batch(task))


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
    assert re.search(rf"{split}: required word ids below 34, the size of dict.txt, got id", output)


def tiny(tmp_path):
    write_lines(tmp_path / "tiny.txt", ["w0 w1 w0"] * 20)
    arguments = ["--only-source", "--trainpref", tmp_path / "tiny.txt"]
    run("fairseq_cli.preprocess", *arguments, "--destdir", tmp_path / "tiny")
    return tmp_path / "tiny"


def test_adaptive_softmax(corpus, tmp_path):
    flags = [*TRANSFORMER, "--adaptive-softmax-cutoff", "10,20", "--criterion", "bnce"]
    output = refused(corpus, tmp_path, *flags)
    assert "required a plain output projection, got an adaptive softmax" in output
    assert "leave out --adaptive-softmax-cutoff" in output


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
    assert "required a plain output projection, got an adaptive softmax" in output
    assert "Perplexity" in evaluate(corpus, checkpoint)  # fairseq's own way still works


@pytest.mark.parametrize("shift", ["often", "nan"])
def test_shift(shift, corpus):
    output = evaluate(corpus, "a.pt", "--unnormalized", "--log-z-shift", shift, check=False)
    assert "--log-z-shift: required 'checkpoint', 'none' or a finite number" in output


def test_counts_are_kept_and_follow_the_content(corpus, tmp_path):
    """</s> is counted, which dict.txt leaves at 1; a damaged cache is made again."""
    data = copy(corpus, tmp_path)
    _, task, _ = build(corpus, *LSTM)
    dictionary = task.dictionary
    counts = count_tokens(str(data / "train"), dictionary, cache=True)
    assert counts[dictionary.eos()] == 300 and counts[dictionary.pad()] == 0
    (cache,) = data.glob("train.target-counts-*.npy")
    cache.write_bytes(b"damaged")
    assert np.array_equal(count_tokens(str(data / "train"), dictionary, cache=True), counts)
    for part in ("bin", "idx"):
        shutil.copy(data / f"valid.{part}", data / f"train.{part}")
    assert count_tokens(str(data / "train"), dictionary, cache=True)[dictionary.eos()] == 40
    (newer,) = data.glob("train.target-counts-*.npy")
    assert newer != cache


def cached_counts(data):
    """(counts as they are, the file that keeps them, a function that asks for them again)."""
    _, task, _ = build(data, *LSTM)

    def count():
        return count_tokens(str(data / "train"), task.dictionary, cache=True)

    counts = count()
    (cache,) = data.glob("train.target-counts-*.npy")
    return counts, cache, count


@pytest.mark.modern
def test_a_flipped_bit_of_the_kept_counts_is_found(corpus, tmp_path, monkeypatch):
    counts, cache, count = cached_counts(copy(corpus, tmp_path))
    content = cache.read_bytes()
    rng = random.Random(1)
    for position in rng.sample(range(8 * len(content)), 300):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        cache.write_bytes(damaged)
        assert np.array_equal(count(), counts), position
        assert cache.read_bytes() == content, position  # written anew
    monkeypatch.setattr(token_counts, "_count", None)  # not asked: the file is believed
    assert np.array_equal(count(), counts)


@pytest.mark.modern
@pytest.mark.parametrize("wrong", ["zero", "negative", "fewer", "plain", "empty", "table"])
def test_other_counts_than_the_datas_are_not_used(wrong, corpus, tmp_path):
    counts, cache, count = cached_counts(copy(corpus, tmp_path))
    fewer = counts - (counts > 0)
    negative = counts + np.where(np.arange(len(counts)) % 2, 1000, -1000)
    other = {"zero": 0 * counts, "negative": negative, "fewer": fewer, "plain": counts - 1}
    if wrong == "plain":  # no checksum behind it
        np.save(cache, other[wrong])
    elif wrong == "table":
        token_counts._write_cache(str(cache), counts[None])
    elif wrong == "empty":
        cache.write_bytes(b"")
    else:
        token_counts._write_cache(str(cache), other[wrong])
    assert np.array_equal(count(), counts)


def test_what_was_left_behind_in_counting_is_removed(corpus, tmp_path):
    """Old unfinished files and caches of other content; nothing young, nothing of other files."""
    data = copy(corpus, tmp_path)
    for path in data.glob("*.target-counts-*"):
        path.unlink()
    old, young = (data / f"train.target-counts-0.npy.{n}.tmp" for n in ("7", "8"))
    others = [data / name for name in ("train1.target-counts-0.npy", "valid.target-counts-0.npy")]
    outdated = data / "train.target-counts-0.npy"
    for path in (old, young, outdated, *others):
        path.touch()
    os.utime(old, (0, 0))
    _, cache, _ = cached_counts(data)
    assert not old.exists() and cache != outdated and young.exists()
    assert all(path.exists() for path in others)


@pytest.mark.modern
def test_a_full_disk_keeps_no_counts(corpus, tmp_path, monkeypatch):
    """They are counted each time, and no half of a file stays."""
    data = copy(corpus, tmp_path)
    for path in data.glob("*.target-counts-*"):
        path.unlink()
    _, task, _ = build(data, *LSTM)

    def replace(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(token_counts.os, "replace", replace)
    assert count_tokens(str(data / "train"), task.dictionary, cache=True).sum() > 0
    assert not list(data.glob("*.target-counts-*"))


@pytest.mark.modern
@pytest.mark.parametrize("subset", ["train", "valid"])
@pytest.mark.parametrize("lines", [None, "pairs"], ids=["language model", "translation"])
def test_noise_is_counted_from_the_training_subset(lines, subset, corpus, pairs):
    """--train-subset valid trains on another split than train."""
    flags = [*(LSTM if lines is None else SEQ2SEQ), "--criterion", "bnce"]
    cfg, task, _ = build(corpus if lines is None else pairs, *flags, "--train-subset", subset)
    criterion = task.build_criterion(cfg.criterion)
    got = criterion.noise.unigram.log_q
    prefix = corpus / subset if lines is None else pairs / f"{subset}.fr-en.en"
    want = count_tokens(str(prefix), task.target_dictionary)
    assert torch.equal(got, NoiseDistribution(torch.from_numpy(want)).log_q)


def test_counts_of_the_training_subset_are_kept(corpus, tmp_path):
    data = copy(corpus, tmp_path)
    for path in data.glob("*.target-counts-*"):
        path.unlink()
    _, task, _ = build(data, *LSTM, "--train-subset", "valid")
    task.load_dataset("train")
    assert not list(data.glob("*.target-counts-*"))
    task.load_dataset("valid")
    assert len(list(data.glob("valid.target-counts-*.npy"))) == 1


def test_a_file_of_any_size_is_counted_in_bounded_memory(corpus, monkeypatch):
    """Not the counts of all its parts at once, each of the vocabulary's size."""
    dictionary = Dictionary.load(str(corpus / "dict.txt"))
    words, parts = 100_000, 20
    tokens = np.full(10 * parts, words - 1, dtype=np.int32)
    monkeypatch.setattr(token_counts, "_mapped_tokens", lambda _: tokens)
    monkeypatch.setattr(token_counts, "_COUNT_AT_ONCE", 10)
    tracemalloc.start()
    try:
        counts = token_counts._count(str(corpus / "train"), dictionary)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts[-1] == 10 * parts and len(counts) == words
    assert peak < 4 * counts.nbytes


def folders_of_several_files(corpus, tmp_path):
    """Two, of which the first has train and train1."""
    for folder, names in (("a", ("train", "valid")), ("b", ("valid",))):
        (tmp_path / folder).mkdir()
        shutil.copy(corpus / "dict.txt", tmp_path / folder)
        for number, name in enumerate(names):
            for end in ("bin", "idx"):
                target = tmp_path / folder / f"train{number or ''}.{end}"
                shutil.copy(corpus / f"{name}.{end}", target)
    return f"{tmp_path / 'a'}:{tmp_path / 'b'}"


@pytest.mark.parametrize("flags", [[], ["--add-bos-token"]], ids=["plain", "bos"])
def test_targets_of_all_files_and_folders_are_counted(flags, corpus, tmp_path):
    data = folders_of_several_files(corpus, tmp_path)
    _, task, _ = build(data, *LSTM, *flags)
    task.args.train_subset = "train"
    want = torch.zeros(len(task.dictionary), dtype=torch.int64)
    for epoch in (1, 2):
        task.load_dataset("train", epoch=epoch, combine=True)
        dataset = task.dataset("train")
        for number in range(len(dataset)):
            want += torch.bincount(dataset[number]["target"], minlength=len(want))
    assert torch.equal(training_target_counts(task), want)


def test_every_folder_is_checked_before_it_is_read(corpus, tmp_path):
    data = folders_of_several_files(corpus, tmp_path)
    _, task, _ = build(data, *LSTM)
    task.args.train_subset = "train"
    with (tmp_path / "b" / "train.bin").open("ab") as file:
        file.write(b"more")
    task.load_dataset("train", epoch=1, combine=True)
    with pytest.raises(InputError, match="b/train.bin: required .* bytes, as its index says, got"):
        task.load_dataset("train", epoch=2, combine=True)


def test_other_formats_and_several_files_are_counted(corpus, tmp_path, monkeypatch):
    write_lines(tmp_path / "train.txt", ["w0 w1", "w0"])
    arguments = ["--only-source", "--trainpref", tmp_path / "train.txt", "--dataset-impl", "lazy"]
    arguments += ["--srcdict", corpus / "dict.txt", "--destdir", tmp_path / "bin"]
    run("fairseq_cli.preprocess", *arguments)
    _, task, _ = build(corpus, *LSTM)
    dictionary = task.dictionary
    for joined in (token_counts._JOINED, 1):
        monkeypatch.setattr(token_counts, "_JOINED", joined)
        counts = count_tokens(str(tmp_path / "bin" / "train"), dictionary)
        assert counts.sum() == 5 and counts[dictionary.index("w0")] == 2
    with pytest.raises(InputError, match="test.idx: required a binarised index"):
        count_tokens(str(tmp_path / "bin" / "test"), dictionary)
