"""Counts of the training targets, which are kept beside the data."""

import os
import shutil

import numpy as np
import pytest
import torch
from architectures import SEQ2SEQ
from fairseq.data import Dictionary
from tools import LSTM, binarise, build, write_lines

from fairseq_bnce.data.token_counts import count_tokens, training_target_counts
from fairseq_bnce.errors import InputError
from fairseq_bnce.noise import NoiseDistribution


@pytest.fixture
def data(corpus, tmp_path):
    """A copy of the data, without counts."""
    ignored = shutil.ignore_patterns("*.target-counts-*")
    return shutil.copytree(corpus, tmp_path / "data", ignore=ignored)


def test_counts_are_kept_and_follow_the_content(data):
    """</s> is counted, which dict.txt leaves at 1; counts of earlier content are removed."""
    dictionary, prefix = Dictionary.load(str(data / "dict.txt")), str(data / "train")
    counts = count_tokens(prefix, dictionary, cache=True)
    assert counts[dictionary.eos()] == 300 and counts[dictionary.pad()] == 0
    (kept,) = data.glob("train.target-counts-*.npy")
    np.save(kept, counts + 1)
    assert np.array_equal(count_tokens(prefix, dictionary, cache=True), counts + 1)
    for part in ("bin", "idx"):
        shutil.copy(data / f"valid.{part}", data / f"train.{part}")
    assert count_tokens(prefix, dictionary, cache=True)[dictionary.eos()] == 40
    (newer,) = data.glob("train.target-counts-*.npy")
    assert newer != kept


@pytest.mark.parametrize("place", [0, -1])
def test_counts_of_other_content_with_the_same_size_and_times_are_made_again(place, data):
    """As an archive, or another copy, restores the times."""
    dictionary, prefix = Dictionary.load(str(data / "dict.txt")), str(data / "train")
    before = count_tokens(prefix, dictionary, cache=True)
    status = (data / "train.bin").stat()
    tokens = np.memmap(data / "train.bin", mode="r+", dtype=np.uint16)
    tokens[place] = new = 4 + (tokens[place] == 4)
    tokens.flush()
    os.utime(data / "train.bin", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert count_tokens(prefix, dictionary, cache=True)[new] == before[new] + 1


@pytest.mark.parametrize("unknown", [0, 3])
def test_a_text_without_unk_is_reported(unknown, corpus, tmp_path, caplog):
    """Also in one of the formats that fairseq made before."""
    write_lines(tmp_path / "train.txt", ["w0 w1 w2", *["w0 strange"] * unknown])
    flags = ["--srcdict", corpus / "dict.txt", "--dataset-impl", "lazy"]
    binarise(tmp_path, tmp_path / "bin", *flags)
    _, task, _ = build(tmp_path / "bin", *LSTM)
    with caplog.at_level("INFO"):
        counts = training_target_counts(task)
    assert counts[task.dictionary.unk()] == unknown and counts.sum() == 4 + 3 * unknown
    assert ("none of them <unk>" in caplog.text) == (unknown == 0)


@pytest.mark.modern
@pytest.mark.parametrize("subset", ["train", "valid"])
@pytest.mark.parametrize("lines", [None, "pairs"], ids=["language model", "translation"])
def test_noise_is_counted_from_the_training_subset(lines, subset, corpus, pairs):
    """--train-subset valid trains on another split than train."""
    flags = [*(LSTM if lines is None else SEQ2SEQ), "--criterion", "bnce"]
    cfg, task, _ = build(corpus if lines is None else pairs, *flags, "--train-subset", subset)
    criterion = task.build_criterion(cfg.criterion)
    prefix = corpus / subset if lines is None else pairs / f"{subset}.fr-en.en"
    want = count_tokens(str(prefix), task.target_dictionary)
    log_q = NoiseDistribution(torch.from_numpy(want)).log_q
    assert torch.equal(criterion.noise.unigram.log_q, log_q)


CUT = {"plain": [], "bos": ["--add-bos-token"]}
CUT["truncated"] = ["--shorten-method", "truncate", "--tokens-per-sample", "6"]
CUT["cropped"] = ["--shorten-method", "random_crop", "--tokens-per-sample", "6", *CUT["bos"]]


@pytest.mark.parametrize("flags", CUT.values(), ids=CUT)
def test_targets_of_all_files_and_folders_are_counted(flags, corpus, tmp_path):
    """Two folders, the first with train and train1; each is checked before it is read."""
    for folder, names in (("a", ("train", "valid")), ("b", ("valid",))):
        (tmp_path / folder).mkdir()
        shutil.copy(corpus / "dict.txt", tmp_path / folder)
        for number, name in enumerate(names):
            for end in ("bin", "idx"):
                target = tmp_path / folder / f"train{number or ''}.{end}"
                shutil.copy(corpus / f"{name}.{end}", target)
    _, task, _ = build(f"{tmp_path / 'a'}:{tmp_path / 'b'}", *LSTM, *flags)
    task.args.train_subset = "train"
    want = torch.zeros(len(task.dictionary), dtype=torch.int64)
    for epoch in (1, 2):
        task.load_dataset("train", epoch=epoch, combine=True)
        dataset = task.dataset("train")
        for number in range(len(dataset)):
            want += torch.bincount(dataset[number]["target"], minlength=len(want))
    assert torch.equal(training_target_counts(task), want)
    with (tmp_path / "b" / "train.bin").open("ab") as file:
        file.write(b"more")
    task.load_dataset("train", epoch=1, combine=True)
    with pytest.raises(InputError, match="b/train.bin"):
        task.load_dataset("train", epoch=2, combine=True)
