"""Training under fairseq's other tasks: their targets are counted from what the task has loaded."""

import re
import shutil

import numpy as np
import pytest
from architectures import SMALL
from conftest import TYPES, zipf_lines
from tools import LSTM, PLUGIN, TRAINING, binarise, build, run, write_lines

from fairseq_bnce.data.token_counts import count_tokens, training_target_counts
from fairseq_bnce.errors import InputError

LANGUAGES = ["--task", "multilingual_language_modeling", "--tokens-per-sample", "16"]
LANGUAGES += ["--langs", "aa,bb"]
SAMPLED = "--multilang-sampling-alpha"  # of 1 fairseq itself says AssertionError
TRANSFORMERS = ["--encoder-layers", "1", "--decoder-layers", "1", "--encoder-attention-heads", "2"]
TRANSFORMERS += ["--decoder-attention-heads", "2", *SMALL]
PAIRS = ["--lang-pairs", "fr-en,fr-de", *TRANSFORMERS]
SIMPLE = ["--task", "translation_multi_simple_epoch", "--arch", "transformer", *PAIRS]
ROUND_ROBIN = ["--task", "multilingual_translation", "--arch", "multilingual_transformer", *PAIRS]
DUMMY = ["--dict-size", "50", "--dataset-size", "40"]
DUMMY_LM = ["--task", "dummy_lm", "--tokens-per-sample", "8", *LSTM, *DUMMY]
DUMMY_MT = ["--task", "dummy_mt", "--arch", "transformer", *TRANSFORMERS, *DUMMY]


@pytest.fixture(scope="module")
def languages(corpus, tmp_path_factory):
    """A folder of two languages: the second has less text, and its common words are others."""
    folder = tmp_path_factory.mktemp("languages")
    shutil.copy(corpus / "dict.txt", folder)
    swapped = lambda number: str(TYPES - 1 - int(number[0]))  # noqa: E731
    for language, count in (("aa", 300), ("bb", 40)):
        lines = zipf_lines(count, seed=count)
        if language == "bb":
            lines = [re.sub(r"\d+", swapped, line) for line in lines]
        for split in ("train", "valid"):
            write_lines(folder / f"{split}.txt", lines)
        binarise(folder, folder / language, "--srcdict", corpus / "dict.txt")
    return folder


@pytest.fixture(scope="module")
def three_languages(pairs, tmp_path_factory):
    """A parallel corpus of fr-en and fr-de, which is the same."""
    folder = tmp_path_factory.mktemp("three")
    for language in ("fr", "en", "de"):
        shutil.copy(pairs / "dict.en.txt", folder / f"dict.{language}.txt")
    for path in pairs.glob("*.fr-en.*"):
        shutil.copy(path, folder)
        if path.suffix in (".bin", ".idx"):
            shutil.copy(path, folder / path.name.replace("en", "de"))
    return folder


def train(tmp_path, *flags, check=True):
    places = ["--user-dir", PLUGIN, "--save-dir", tmp_path / "run"]
    return run("fairseq_cli.train", *places, *TRAINING, *flags, check=check)


def test_languages_are_counted_as_the_task_samples_them(languages):
    alpha = 0.3
    flags = [*LANGUAGES, *LSTM, SAMPLED, str(alpha), "--criterion", "bnce"]
    _, task, _ = build(languages, *flags)
    task.load_dataset("train")
    got = training_target_counts(task).double()
    prefixes = (str(languages / name / "train") for name in ("aa", "bb"))
    both = [count_tokens(prefix, task.dictionary).astype(float) for prefix in prefixes]
    shares = [counts.sum() ** alpha for counts in both]
    want = sum(share * counts / counts.sum() for share, counts in zip(shares, both)) / sum(shares)
    common = want > 0.02
    np.testing.assert_allclose((got / got.sum()).numpy()[common], want[common], rtol=0.15)


@pytest.mark.parametrize("name", ["languages", "translations", "dummy_lm", "dummy_mt"])
def test_trained(name, languages, three_languages, tmp_path):
    data, flags = {
        "languages": ([languages], [*LANGUAGES, *LSTM, SAMPLED, "0.5"]),
        "translations": ([three_languages], SIMPLE),
        "dummy_lm": ([], DUMMY_LM),
        "dummy_mt": ([], DUMMY_MT),
    }[name]
    output = train(tmp_path, *data, *flags, "--criterion", "bnce")
    assert "noise: counted" in output and '"valid_ppl"' in output


@pytest.mark.parametrize("noise, fits", [("unigram", False), ("uniform", True)])
def test_what_cannot_be_counted(noise, fits, three_languages, tmp_path):
    """Each batch of this task is of one language; with uniform noise nothing is counted."""
    flags = [*ROUND_ROBIN, "--criterion", "shared_nce", "--noise", noise]
    output = train(tmp_path, three_languages, *flags, check=fits)
    assert fits or re.search("MultilingualTranslationTask: .* --noise uniform", output)


def test_data_that_are_not_loaded_yet(languages):
    _, task, _ = build(languages, *LANGUAGES, *LSTM, "--criterion", "bnce")
    with pytest.raises(InputError):
        training_target_counts(task)
