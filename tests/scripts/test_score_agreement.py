"""scripts/score_agreement.py: how it reads and compares scores, and the command."""

import json

import forks
import pytest
import score_agreement
from experiments import processes


def command(*arguments):
    """Return the exit status and the output."""
    return forks.script("score_agreement.py", *arguments)


def test_words_are_in_the_order_of_the_data():
    output = "x | INFO | fairseq_cli.eval_lm | 1 c [-3.5] </s> [-0.25]\nother\n"
    output += "x | INFO | fairseq_cli.eval_lm | 0 a [-1.0] b [-2.0]\n"
    found = score_agreement.eval_lm_scores(output)
    assert found == [("a", -1.0), ("b", -2.0), ("c", -3.5), ("</s>", -0.25)]


def test_the_largest_difference():
    found = score_agreement.agreement([("a", -1.0), ("b", -3.0)], [("a", -1.5), ("b", -2.9)], "x")
    assert found["words"] == 2 and found["difference"] == 0.5
    assert found["perplexity"] == pytest.approx(9.025, rel=1e-3)  # exp((1.5 + 2.9) / 2)
    for other in ([("b", -1.0)], [("a", -1.0), ("b", -1.0)], []):
        with pytest.raises(processes.CommandFailed):
            score_agreement.agreement([("a", -1.0)], other, "x")


def test_the_command(corpus, tmp_path, language_model):
    models = ["--models", "rnn_lm", f"mine={language_model('ffnn_lm')}", "--updates", "3"]
    arguments = [corpus, "--out", tmp_path, "--gen-subset", "valid", *models]
    status, output = command(*arguments)
    assert status == 0, output
    found = json.loads((tmp_path / "agreement.json").read_text(encoding="utf-8"))["models"]
    assert set(found) == {"rnn_lm", "mine"}
    for ways in found.values():
        assert len(ways) == 2
        assert all(way["words"] > 300 and way["difference"] < 1e-5 for way in ways.values())
    assert (tmp_path / "agreement.md").read_text(encoding="utf-8") in output
    assert len(list(tmp_path.glob("model-rnn_lm-3-*/checkpoint_last.pt"))) == 1


@pytest.mark.parametrize(
    "models, named", [(["gru_lm"], "gru_lm"), (["mine=nowhere.pt"], "nowhere.pt")]
)
def test_unusable_models_are_named(corpus, tmp_path, models, named):
    status, output = command(corpus, "--out", tmp_path / "out", "--models", *models)
    assert status == 2 and named in output
