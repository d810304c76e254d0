"""The scores of an untrained model, in decoders that have no output bias."""

import math

import pytest
import torch
from architectures import LIGHTCONV
from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER, build, first_batch

from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.output_layer import initial_scores
from fairseq_bnce.output_layer.layer import OutputLayer

BNCE = ["--criterion", "bnce"]
BEFORE = [*TRANSFORMER, "--decoder-normalize-before"]
DROPPING = ["--dropout", "0.3", "--attention-dropout", "0.1"]
NORMALISED_LAST = {
    "after layers": TRANSFORMER,
    "at the end": BEFORE,
    "at the end, layers dropped": [*BEFORE, "--decoder-layerdrop", "0.5"],
    "tied": TIED_TRANSFORMER,
    "projected": [*TRANSFORMER, "--decoder-output-dim", "12"],
}
NOT_NORMALISED = {
    "transformer without a last one": [*BEFORE, "--no-decoder-final-norm"],
    "transformer, the last layer dropped": [*TRANSFORMER, "--decoder-layerdrop", "0.5"],
    "lightconv": LIGHTCONV,
    "tied LSTM": [*LSTM, "--share-decoder-input-output-embed"],
}


@torch.no_grad()
def features_of(model, task):
    return OutputLayer(model).features(model, first_batch(task)["net_input"])


STARTS = [("tied", "uniform", 0), *((name, "unigram", 3.5) for name in NORMALISED_LAST)]


@pytest.mark.parametrize("name, start, log_z", STARTS)
def test_one_feature_carries_them(name, start, log_z, corpus):
    flags = [*NORMALISED_LAST[name], *BNCE, "--init-output-bias", start, "--log-z", str(log_z)]
    cfg, task, model = build(corpus, *flags, *DROPPING)
    criterion = task.build_criterion(cfg.criterion)
    features = features_of(model.train(), task)
    constant = features[..., 0]
    assert constant.min() == constant.max() == pytest.approx(math.sqrt(16))
    assert features[..., 1].std() > 0.1
    weight = OutputLayer(model).full()[0].detach()
    q = criterion.noise.unigram
    q = q if start == "unigram" else NoiseDistribution.uniform(64)
    torch.testing.assert_close(constant[0, 0] * weight[:, 0], q.log_q + log_z)
    assert criterion.log_z == log_z


@pytest.mark.parametrize("name", ["after layers", "tied"])
def test_what_random_weights_add_is_small(name, corpus):
    cfg, task, model = build(corpus, *NORMALISED_LAST[name], *BNCE)
    before = features_of(model.eval(), task)[..., 1:].std()
    task.build_criterion(cfg.criterion)
    after = features_of(model, task)[..., 1:].std()
    assert 0.15 * before < after < 0.35 * before


@pytest.mark.parametrize("name", NOT_NORMALISED)
def test_without_a_last_normalisation_scores_stay_random(name, corpus, caplog):
    _, task, stock = build(corpus, *NOT_NORMALISED[name])
    cfg, task, model = build(corpus, *NOT_NORMALISED[name], *BNCE)
    criterion = task.build_criterion(cfg.criterion)
    assert not initial_scores.can_be_set(OutputLayer(model))
    assert all(map(torch.equal, stock.parameters(), model.parameters()))
    assert criterion.start is None  # is measured
    assert "--init-output-bias unigram: " in caplog.text
    assert "has neither an output bias nor a last layer normalisation" in caplog.text


def test_none_leaves_the_model_alone(corpus, caplog):
    _, _, stock = build(corpus, *TRANSFORMER)
    cfg, task, model = build(corpus, *TRANSFORMER, *BNCE, "--init-output-bias", "none")
    task.build_criterion(cfg.criterion)
    assert all(map(torch.equal, stock.parameters(), model.parameters()))
    assert "--init-output-bias" not in caplog.text
