"""Edited checkpoints: scores that are right, or one error; see fuzz_checkpoints.py."""

import pytest
from fuzz_checkpoints import Fuzzer

pytestmark = pytest.mark.modern


@pytest.mark.parametrize("name", ["rnn_lm", "lstm_lm"])
def test_edited_checkpoints(name, corpus, language_model, tmp_path):
    came = run(name, corpus, language_model, tmp_path, range(60))
    assert 10 < sum(what == "scores" for what in came) < 55


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rnn_lm", "lstm_lm", "transformer_lm", "fconv_lm", "lbl_lm"])
def test_more_edited_checkpoints(name, corpus, language_model, tmp_path):
    run(name, corpus, language_model, tmp_path, range(1000, 1250))


def run(name, corpus, language_model, folder, numbers):
    fuzzer = Fuzzer(language_model(name), corpus, folder)
    return [fuzzer.run(f"{name}-{number}")[1] for number in numbers]
