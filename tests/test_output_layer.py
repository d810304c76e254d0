"""The projection of every decoder served: features, rows and scores against the model's own."""

import functools

import pytest
import torch
from architectures import FCONV, MODELS
from tools import build, first_batch
from torch.nn import ModuleDict

from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.output_layer.layer import OutputLayer


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def served(request, corpus, pairs):
    """(model, batch) of an architecture, in evaluation mode."""
    flags = request.param
    _, task, model = build(pairs if "translation" in flags else corpus, *flags)
    return model.eval(), first_batch(task)


def logits(model, sample):
    return model(**sample["net_input"])[0]


def scores(features, rows):
    return torch.nn.functional.linear(features, *rows[:2])


def test_features_and_full_rows_give_the_models_logits(served):
    model, sample = served
    layer = OutputLayer(model)
    with torch.no_grad():
        ours = scores(layer.features(model, sample["net_input"]), layer.full())
        assert ours.shape[-1] == len(layer)
        torch.testing.assert_close(ours, logits(model, sample), rtol=1e-5, atol=1e-6)


def test_rows_are_those_of_the_full_projection(served):
    layer = OutputLayer(served[0])
    ids = torch.tensor([5, 4, 11, 5])
    for part, whole in zip(layer.rows(ids), layer.full()):
        assert (part is None) == (whole is None)
        if part is not None:
            torch.testing.assert_close(part, whole[ids])


def test_model_is_as_it_was_after_an_error(served):
    model, sample = served
    before = logits(model, sample)
    broken = {**sample["net_input"], "src_tokens": torch.full((1, 2), 10**6)}
    with pytest.raises(IndexError):
        OutputLayer(model).features(model, broken)
    torch.testing.assert_close(logits(model, sample), before)


def test_gradients_reach_projection_and_features(served):
    """Also where weight_norm leaves ``weight`` stale: rows come from the parameters themselves."""
    model, sample = served
    layer = OutputLayer(model)
    features = layer.features(model, sample["net_input"])
    scores(features, layer.rows(torch.tensor([5, 6]))).sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    # An encoder's unused parts aside, what has no gradient here has none in the full model.
    model.zero_grad(set_to_none=True)
    logits(model, sample).sum().backward()
    assert missing == [name for name, p in model.named_parameters() if p.grad is None]


def test_rows_follow_an_update(corpus):
    """fconv_lm's fc3.weight is stale after an update until its forward is called; ours is not."""
    _, task, model = build(corpus, *FCONV)
    sample = first_batch(task)
    layer = OutputLayer(model.eval())
    with torch.no_grad():
        model.decoder.fc3.weight_g.mul_(2)
        ours = scores(layer.features(model, sample["net_input"]), layer.full())
        torch.testing.assert_close(ours, logits(model, sample), rtol=1e-5, atol=1e-6)


def _projecting(reparametrised):
    projection = reparametrised(torch.nn.Linear(4, 9))
    return ModuleDict({"decoder": ModuleDict({"output_projection": projection})})


UNKNOWN = {
    "no decoder": torch.nn.Linear(2, 2),
    "no projection": ModuleDict({"decoder": torch.nn.Identity()}),
    "spectral norm": _projecting(torch.nn.utils.spectral_norm),
    "norm of columns": _projecting(functools.partial(torch.nn.utils.weight_norm, dim=1)),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_unknown_decoders_are_refused(kind):
    with pytest.raises(UnsupportedModelError):
        OutputLayer(UNKNOWN[kind])


class _Streams(ModuleDict):
    """Swallows what it is told and returns several streams, as a multi-stream decoder does."""

    def forward(self, **_):
        return [{"a": torch.zeros(1, 2, 4)}]


class _Logits(_Streams):
    """Believes to have projected, but with something else than its output_projection."""

    def forward(self, **_):
        return torch.zeros(1, 2, 9), None


@pytest.mark.parametrize("decoder", [_Streams, _Logits])
def test_decoders_are_recognised_by_shape(decoder):
    model = ModuleDict({"decoder": decoder({"output_projection": torch.nn.Linear(4, 9)})})
    model.forward = lambda **kwargs: model.decoder(**kwargs)
    with pytest.raises(UnsupportedModelError):
        OutputLayer(model).features(model, {})
