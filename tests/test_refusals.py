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


def test_an_architecture_that_knows_of_no_output_dictionary(corpus, tmp_path):
    output = refused(corpus, tmp_path, *BNCE, "--output-dictionary-size", "30")
    assert "--output-dictionary-size: required" in output


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


@pytest.mark.parametrize("part", ["train.bin", "valid.bin", "valid.idx"])
def test_damaged_data(part, corpus, tmp_path):
    data = copy(corpus, tmp_path)
    path = data / part
    path.write_bytes(path.read_bytes()[:100])
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
    for path, shift, name in (
        ("a.pt:b.pt", "0", "--unnormalized"),
        (language_model("lstm_lm"), "often", "--log-z-shift"),
    ):
        output = evaluate(corpus, path, *unnormalized, shift, check=False)
        assert f"{name}: required" in re.sub(r"\s+", " ", output)
