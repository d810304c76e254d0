"""Counts of the training targets, which are kept beside the data."""

import shutil

import numpy as np
import pytest
import torch
from architectures import SEQ2SEQ
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from tools import LSTM, build, run, write_lines

from fairseq_bnce.data.token_counts import count_tokens, training_target_counts
from fairseq_bnce.errors import InputError
from fairseq_bnce.noise import NoiseDistribution


def test_counts_are_kept_and_follow_the_content(corpus, tmp_path):
    """</s> is counted, which dict.txt leaves at 1; counts of earlier content are removed."""
    data = shutil.copytree(corpus, tmp_path / "data")
    _, task, _ = build(corpus, *LSTM)
    dictionary = task.dictionary
    counts = count_tokens(str(data / "train"), dictionary, cache=True)
    assert counts[dictionary.eos()] == 300 and counts[dictionary.pad()] == 0
    (kept,) = data.glob("train.target-counts-*.npy")
    np.save(kept, counts + 1)
    assert np.array_equal(count_tokens(str(data / "train"), dictionary, cache=True), counts + 1)
    for part in ("bin", "idx"):
        shutil.copy(data / f"valid.{part}", data / f"train.{part}")
    assert count_tokens(str(data / "train"), dictionary, cache=True)[dictionary.eos()] == 40
    (newer,) = data.glob("train.target-counts-*.npy")
    assert newer != kept


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
    with pytest.raises(InputError, match="b/train.bin"):
        task.load_dataset("train", epoch=2, combine=True)


def wide_copy(corpus, tmp_path):
    """(folder, dictionary) of the training data with four bytes an id."""
    dictionary = Dictionary.load(str(corpus / "dict.txt"))
    (tmp_path / "data").mkdir()
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "data" / "train.bin"), dtype=np.int32)
    for line in MMapIndexedDataset(str(corpus / "train")):
        builder.add_item(line)
    builder.finalize(str(tmp_path / "data" / "train.idx"))
    return tmp_path / "data", dictionary


@pytest.mark.parametrize("id_", [-1, 2**31 - 1])
def test_ids_that_no_dictionary_has_are_refused(id_, corpus, tmp_path):
    data, dictionary = wide_copy(corpus, tmp_path)
    tokens = np.memmap(data / "train.bin", mode="r+", dtype=np.int32)
    tokens[7] = id_
    tokens.flush()
    with pytest.raises(InputError, match=f"train: .* got id {id_};"):
        count_tokens(str(data / "train"), dictionary)


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("part", ["idx", "bin"])
@pytest.mark.parametrize("size", [0, 17, None])
def test_damaged_or_missing_files_are_named(part, size, cache, corpus, tmp_path):
    data, dictionary = wide_copy(corpus, tmp_path)
    path = data / f"train.{part}"
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match=f"train.{part}"):
        count_tokens(str(data / "train"), dictionary, cache=cache)


def test_other_formats_are_counted(corpus, tmp_path):
    write_lines(tmp_path / "train.txt", ["w0 w1", "w0"])
    arguments = ["--only-source", "--trainpref", tmp_path / "train.txt", "--dataset-impl", "lazy"]
    arguments += ["--srcdict", corpus / "dict.txt", "--destdir", tmp_path / "bin"]
    run("fairseq_cli.preprocess", *arguments)
    dictionary = Dictionary.load(str(corpus / "dict.txt"))
    counts = count_tokens(str(tmp_path / "bin" / "train"), dictionary)
    assert counts.sum() == 5 and counts[dictionary.index("w0")] == 2
