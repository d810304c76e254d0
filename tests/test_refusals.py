"""Bad input, as a user meets it in the terminal: the error names the thing."""

import re
import shutil

import numpy as np
import pytest
from scoring_models import ADAPTIVE
from tools import LSTM, evaluate, refused

from fairseq_bnce import Scorer
from fairseq_bnce.errors import UnsupportedModelError

BNCE = [*LSTM, "--criterion", "bnce"]


def copy(corpus, tmp_path):
    return shutil.copytree(corpus, tmp_path / "data")


STATEFUL = ["--arch", "rnn_lm", "--decoder-embed-dim", "16", "--stateful"]


WAYS = [
    ([*LSTM, "--output-dictionary-size", "30"], "--output-dictionary-size: required"),
    ([*LSTM, "--stateful"], "--stateful: required"),
    ([*STATEFUL, "--sample-break-mode", "eos"], "--sample-break-mode: required"),
    ([*STATEFUL, "--batch-size", "500"], "--batch-size"),
]


@pytest.mark.parametrize("flags, named", WAYS)
def test_models_that_have_no_such_way(flags, named, corpus, tmp_path):
    assert named in refused(corpus, tmp_path, *flags, "--criterion", "bnce")


def test_missing_data(corpus, tmp_path):
    assert "nowhere/dict.txt" in refused(tmp_path / "nowhere", tmp_path, *BNCE)
    (tmp_path / "empty").mkdir()
    assert "empty/dict.txt" in refused(tmp_path / "empty", tmp_path, *BNCE)
    data = copy(corpus, tmp_path)
    for split in ("valid", "train"):
        for path in data.glob(f"{split}.*"):
            path.unlink()
        output = refused(data, tmp_path, *BNCE)
        assert re.search(rf"required.*{split}.*got none|{split}.idx: required.*got none", output)


DAMAGE = [("train.bin", 100), ("train.bin", None), ("train.idx", 0), ("valid.bin", 0)]


@pytest.mark.parametrize("part, size", [*DAMAGE, ("valid.idx", 100)])
def test_damaged_or_missing_files(part, size, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    path = data / part
    path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])
    assert f"{part[:-3]}idx: required" in refused(data, tmp_path, *BNCE)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_words_that_the_dictionary_lacks(split, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    tokens = np.memmap(data / f"{split}.bin", mode="r+", dtype=np.uint16)
    tokens[7] = 2**16 - 1
    tokens.flush()
    output = refused(data, tmp_path, *BNCE)
    assert f"{split}: required word ids" in output and "got id 65535" in output


def test_unnormalized(corpus, language_model):
    """Refused for an ensemble, a bad shift, and an adaptive softmax, which is scored exactly."""
    checkpoint = language_model(ADAPTIVE)
    unnormalized = ["--unnormalized", "--log-z-shift"]
    for shift in (["--log-z-shift", "0"], []):
        output = evaluate(corpus, checkpoint, "--unnormalized", *shift, check=False)
        assert "adaptive" in output and "Perplexity" not in output
        assert "reduced-partition" not in output  # which does not fit it either
    with pytest.raises(UnsupportedModelError):
        Scorer.from_checkpoint(checkpoint)
    assert "Perplexity" in evaluate(corpus, checkpoint)  # fairseq's own way still works
    lstm = language_model("lstm_lm")
    refusals = (("a.pt:b.pt", "0", "--unnormalized"), (lstm, "often", "--log-z-shift"))
    for path, shift, name in refusals:
        output = evaluate(corpus, path, *unnormalized, shift, check=False)
        assert f"{name}: required" in re.sub(r"\s+", " ", output)
