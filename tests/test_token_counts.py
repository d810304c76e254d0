"""How often each word is a target of the training data: counted once, and kept beside it."""

import os
import random
import shutil
import struct
import tracemalloc

import numpy as np
import pytest
import torch
from architectures import SEQ2SEQ
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from tools import LSTM, build, run, write_lines

from fairseq_bnce.data import token_counts
from fairseq_bnce.data.token_counts import count_tokens, training_target_counts
from fairseq_bnce.errors import InputError
from fairseq_bnce.noise import NoiseDistribution


def test_counts_are_kept_and_follow_the_content(corpus, tmp_path):
    """</s> is counted, which dict.txt leaves at 1; a damaged cache is made again."""
    data = shutil.copytree(corpus, tmp_path / "data")
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


@pytest.mark.parametrize("unknown", [0, 3])
def test_a_text_without_unk_is_told_of(unknown, corpus, tmp_path, caplog):
    write_lines(tmp_path / "train.txt", ["w0 w1 w2", *["w0 strange"] * unknown])
    arguments = ["--only-source", "--trainpref", tmp_path / "train.txt", "--destdir"]
    run(
        *["fairseq_cli.preprocess", *arguments, tmp_path / "bin"],
        *["--srcdict", corpus / "dict.txt"],
    )
    _, task, _ = build(tmp_path / "bin", *LSTM)
    with caplog.at_level("INFO"):
        assert training_target_counts(task)[task.dictionary.unk()] == unknown
    assert ("none of them <unk>" in caplog.text) == (unknown == 0)


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
    counts, cache, count = cached_counts(shutil.copytree(corpus, tmp_path / "data"))
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
    counts, cache, count = cached_counts(shutil.copytree(corpus, tmp_path / "data"))
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
    data = shutil.copytree(corpus, tmp_path / "data")
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
    data = shutil.copytree(corpus, tmp_path / "data")
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
    data = shutil.copytree(corpus, tmp_path / "data")
    for path in data.glob("*.target-counts-*"):
        path.unlink()
    flags = [*LSTM, "--train-subset", "valid"]
    build(data, *flags, "--criterion", "cross_entropy")[1].load_dataset("valid")  # needs no noise
    cfg, task, _ = build(data, *flags, "--criterion", "bnce", "--init-output-bias", "none")
    task.build_criterion(cfg.criterion)
    task.load_dataset("train")
    assert not list(data.glob("*.target-counts-*"))
    task.load_dataset("valid")
    assert len(list(data.glob("valid.target-counts-*.npy"))) == 1


def test_a_file_of_any_size_is_counted_in_bounded_memory(corpus, monkeypatch):
    """Not the counts of all its parts at once, each of the vocabulary's size."""
    words, parts = 100_000, 20
    tokens = np.full(10 * parts, words - 1, dtype=np.int32)
    monkeypatch.setattr(token_counts, "_mapped_tokens", lambda _: tokens)
    monkeypatch.setattr(token_counts, "_COUNT_AT_ONCE", 10)
    tracemalloc.start()
    try:
        counts = token_counts._count(str(corpus / "train"), range(words))
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


@pytest.mark.parametrize("id_", [-1, -(2**31), 2**31 - 1])
def test_ids_that_no_dictionary_has(id_, corpus, tmp_path):
    """Of damaged data: counting 2**31 of them would take 16 GB, and negative ones can't be."""
    data, dictionary = wide_copy(corpus, tmp_path)
    tokens = np.memmap(data / "train.bin", mode="r+", dtype=np.int32)
    tokens[7] = id_
    tokens.flush()
    required = f"train: required word ids from 0 and below {len(dictionary)}, the size of dict.txt"
    with pytest.raises(InputError, match=f"{required}, got id {id_};"):
        count_tokens(str(data / "train"), dictionary)


def wide_copy(corpus, tmp_path):
    """(folder, dictionary) of the training data with four bytes an id."""
    dictionary = Dictionary.load(str(corpus / "dict.txt"))
    (tmp_path / "data").mkdir()
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "data" / "train.bin"), dtype=np.int32)
    for line in MMapIndexedDataset(str(corpus / "train")):
        builder.add_item(line)
    builder.finalize(str(tmp_path / "data" / "train.idx"))
    return tmp_path / "data", dictionary


def test_an_index_that_is_cut_off_or_damaged_is_named(corpus, tmp_path):
    data, dictionary = wide_copy(corpus, tmp_path)
    index = data / "train.idx"
    whole = index.read_bytes()
    ends = [whole[:size] for size in range(40)]
    lengths = [whole[:18] + struct.pack("<Q", length) + whole[26:] for length in (2**40, 2**63)]
    for content in [*ends, *lengths]:
        index.write_bytes(content)
        with pytest.raises(InputError, match="train.idx: required a binarised index, got"):
            count_tokens(str(data / "train"), dictionary, cache=True)


def test_an_index_without_its_tokens_is_named(corpus, tmp_path):
    data, dictionary = wide_copy(corpus, tmp_path)
    (data / "train.bin").unlink()
    for cache in (False, True):
        with pytest.raises(
            InputError, match="train.bin: required the tokens of train.idx, got none"
        ):
            count_tokens(str(data / "train"), dictionary, cache=cache)


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
