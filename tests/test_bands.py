"""The output layer in bands: fairseq's adaptive softmax, trained with noise and scored as one."""

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.modules import AdaptiveSoftmax
from scoring_models import BANDS
from test_row_sparse import assert_same, trained
from tools import build, evaluate, first_batch, loss_bits, slow, train, valid_stats, word_scores
from torch.nn import ModuleDict

from fairseq_bnce import Scorer, losses
from fairseq_bnce.criterions.base import TokenBatch
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.losses.words import Words
from fairseq_bnce.output_layer.conversion import read_as_bands
from fairseq_bnce.output_layer.layer import OutputLayer

pytestmark = pytest.mark.usefixtures("empty_folder")

# As --arch transformer_lm has them: words that are read and those that are predicted apart.
SMALL = ["--arch", "transformer_lm", *BANDS[2:]]
INPUT = ["--adaptive-input", "--tie-adaptive-weights"]
ARCHITECTURES = {
    "wiki103": BANDS,
    "projections apart": [*SMALL, *INPUT],
    "tables apart": [*SMALL, "--adaptive-input"],
    "output alone": SMALL,
    "lightconv": ["--arch", "lightconv_lm_gbw", *BANDS[2:], "--decoder-kernel-size-list", "[3]"],
}
ARCHITECTURES["lightconv"] += ["--decoder-conv-type", "lightweight", "--weight-dropout", "0"]
ADAM = ["--optimizer", "adam", "--lr", "0.003"]


def made(corpus, architecture, *flags):
    """(criterion, model in training mode, batch); all parameters are far from their start."""
    cfg, task, model = build(corpus, *ARCHITECTURES[architecture], "--criterion", *flags)
    criterion = task.build_criterion(cfg.criterion)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return criterion, model.double().train(), first_batch(task)


def of_words(layer):
    """The same layer as a plain one (V, D), by the equations, in the words' order."""
    softmax = layer.decoder.adaptive_softmax
    features = torch.eye(layer.size, dtype=torch.float64)
    heads = softmax.head(features)
    first = softmax.cutoff[0]
    columns = [heads[:, :first]]
    for number, tail in enumerate(softmax.tail):
        columns.append(tail(features) + heads[:, first + number, None])
    return torch.cat(columns, dim=1).t(), layer.bias


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_loss_and_gradients_are_those_of_the_plain_layer(architecture, corpus):
    criterion, model, sample = made(corpus, architecture, "bnce", "--noise-samples", "5")
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0  # dropout of the architecture's own would be drawn anew
    criterion.noise.sample = lambda device, count: torch.arange(40, 40 + count) % 64
    loss = criterion(model, sample)[0]
    parameters = dict(model.named_parameters())
    ours = gradients(loss, parameters)
    batch = TokenBatch.from_sample(model, sample, 1, criterion.make_words)
    weight, bias = of_words(batch.layer)
    plain = SimpleNamespace(rows=lambda ids: Words(weight[ids], bias[ids]))
    want = criterion.objective(replace(batch, layer=plain))
    assert loss.item() == pytest.approx(want.item(), rel=1e-9)
    assert len(ours) > 10
    torch.testing.assert_close(ours, gradients(want, parameters), rtol=1e-7, atol=1e-9)


def gradients(loss, parameters):
    """By name, of the parameters that the loss depends on."""
    leaves = list(parameters.values())
    found = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
    return {name: each for name, each in zip(parameters, found) if each is not None}


SQUASHED = [("wiki103", True), *((name, False) for name in ARCHITECTURES)]


@pytest.mark.parametrize("architecture, squash", SQUASHED)
def test_partition_function_and_statistics_without_expanding(architecture, squash, corpus):
    _, model, sample = made(corpus, architecture, "bnce")
    batch = TokenBatch.from_sample(model.eval(), sample, 1)
    weight, bias = of_words(batch.layer)
    inputs = (batch.features, weight, bias)
    for rows, whole in zip(batch.layer.full(), (weight, bias)):
        torch.testing.assert_close(rows, whole)
    batch.layer.kind.is_squashed = squash
    ours = batch.layer.log_partition(batch.features)
    want = losses.log_partition(*inputs, squash=squash)
    torch.testing.assert_close(ours, want)
    parameters = dict(model.decoder.adaptive_softmax.named_parameters())
    slopes = (gradients(log_z.square().sum(), parameters) for log_z in (ours, want))
    torch.testing.assert_close(*slopes, rtol=1e-6, atol=1e-8)
    found = batch.layer.kind.predictive_statistics(batch.features)
    torch.testing.assert_close(found, losses.predictive_statistics(*inputs, squash=squash))
    scores = batch.layer.target_scores(batch.features, batch.target)
    want = losses.target_scores(batch.features, batch.target, weight, bias)
    torch.testing.assert_close(scores, losses.squashed(want) if squash else want)
    if not squash:  # a constant in all scores changes no entropy
        model.float()
        bias.data.add_(3000)
        rounded = batch.layer.kind.predictive_statistics(batch.features.float())
        torch.testing.assert_close(rounded.entropy.double(), found.entropy, rtol=0, atol=1e-3)


SPARSE = [("sparse_adagrad", "wiki103"), ("sparse_sgd", "output alone")]
SPARSE += slow(*itertools.product(["sparse_sgd"], ["wiki103", "tables apart", "lightconv"]))
SPARSE += slow(("sparse_adagrad", "projections apart"))


@pytest.mark.parametrize("optimizer, architecture", SPARSE)
def test_row_sparse_is_dense(optimizer, architecture, corpus):
    """And every table of the size of a band has a row-sparse gradient, in both its places."""
    flags = [*ARCHITECTURES[architecture], "--criterion", "bnce", "--clip-norm", "0.1"]
    flags += ["--optimizer", optimizer, "--lr", "0.05", "--noise-samples", "4"]
    flags += ["--adaptive-softmax-dropout", "0", "--attention-dropout", "0"]
    models = []
    dense, _ = trained(corpus, *flags, frequency=2)
    seen = lambda trainer, _: models.append(trainer.get_model())  # noqa: E731
    sparse, _ = trained(corpus, *flags, "--row-sparse", frequency=2, seen=seen)
    assert_same(sparse, dense)
    tables = r"embed_tokens.weight|embeddings.\d.0|tail.\d.2|head.weight|word_proj|output_bias"
    kinds = [p.grad.is_sparse for n, p in models[0].named_parameters() if re.search(tables, n)]
    assert len(kinds) >= 4 and all(kinds)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_untrained_model_is_the_unigram_model(architecture, corpus):
    """And reads words as it would have without: only what is shared with the output is small."""
    cfg, task, model = build(corpus, *ARCHITECTURES[architecture], "--criterion", "bnce")
    tokens = torch.arange(12)[None]
    before = model.decoder.embed_tokens(tokens)
    criterion, sample = task.build_criterion(cfg.criterion), first_batch(task)
    nll = criterion(model.eval(), sample)[0].item() / sample["ntokens"]
    target = sample["target"][sample["target"].ne(1)]
    unigram = -criterion.noise.unigram.log_q[target].mean().item()
    assert nll == pytest.approx(unigram, rel=0.05)
    torch.testing.assert_close(model.decoder.embed_tokens(tokens), before)


@pytest.fixture
def checkpoint(language_model):
    return language_model("transformer_lm bands")


def test_fairseq_alone_refuses_the_checkpoint(checkpoint, corpus):
    printed = evaluate(corpus, checkpoint, plugin=False, check=False)
    assert 'Unexpected key(s) in state_dict: "decoder.adaptive_softmax.output_bias"' in printed


def test_a_checkpoint_is_no_adaptive_softmax(checkpoint, corpus):
    """Whoever asks the model for probabilities gets ours; adaptive_loss is refused."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    sample = first_batch(task, "valid")
    output = model.eval()(**sample["net_input"])
    weight, bias = of_words(OutputLayer(model.double()))
    want = torch.nn.functional.linear(output[0].double(), weight, bias).log_softmax(-1)
    ours = model.float().get_normalized_probs(output, log_probs=True, sample=sample)
    torch.testing.assert_close(ours.double(), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(UnsupportedModelError):
        CRITERION_REGISTRY["adaptive_loss"](task, False)(model, sample)


LSTM_LM = ["--arch", "lstm_lm", "--decoder-embed-dim", "16", "--decoder-hidden-size", "20"]
LSTM_LM += ["--decoder-out-embed-dim", "12", "--dropout", "0", "--adaptive-softmax-cutoff", "12,30"]
CONVOLUTIONAL = ["--arch", "fconv_lm", "--decoder-layers", "[(20, 3)] * 2", "--decoder-attention"]
CONVOLUTIONAL += ["False", "--dropout", "0", "--adaptive-softmax-cutoff", "12,30"]
CONVOLUTIONAL += ["--decoder-embed-dim", "12"]
SOFTMAXES = {**ARCHITECTURES, "lstm": LSTM_LM, "fconv": CONVOLUTIONAL}
BY_SOFTMAX = ["--optimizer", "adam", "--lr", "0.01", "--criterion", "adaptive_loss"]
BY_SOFTMAX += ["--ddp-backend", "legacy_ddp", "--max-epoch", "3"]


@pytest.mark.parametrize("name", ["wiki103", *slow(*(n for n in SOFTMAXES if n != "wiki103"))])
def test_an_adaptive_softmax_is_scored_as_it_is(name, training, corpus):
    """By eval-lm, by whole sentences, word by word, and on the host; not without a softmax."""
    file, _ = training(*SOFTMAXES[name], *BY_SOFTMAX)
    alone = evaluate(corpus, file, "--output-word-probs", plugin=False)
    ours = evaluate(corpus, file, "--output-word-probs")
    assert "scored as fairseq does" not in ours
    for (word, one), (other, want) in zip(word_scores(ours), word_scores(alone)):
        assert word == other and one == pytest.approx(want, abs=0.011)  # two decimals
    assert loss_bits(ours) == pytest.approx(loss_bits(alone), abs=1e-4)
    scorer = Scorer.from_checkpoint(file, exact=True)
    state = scorer.start(2)
    model = scorer._reader.model
    every = scorer.next_log_probs(state, [list(range(64))] * 2)
    want = model.decoder.adaptive_softmax.get_log_prob(state.features[None], None)[0]
    torch.testing.assert_close(torch.tensor(every), want.double(), rtol=1e-5, atol=1e-5)
    on_host = scorer.next_words()(state).scores(0, list(range(64)))
    assert on_host == pytest.approx(every[0], abs=1e-4)
    sentence = "w3 w40 w0 w59"
    extended, found = scorer.start(), []
    for word in [*scorer.ids(sentence.split()), 2]:
        extended, (log_prob,) = scorer.extend(extended, [word])
        found.append(log_prob)
    assert scorer.score([sentence])[0] == pytest.approx(sum(found), abs=1e-4)
    with pytest.raises(UnsupportedModelError):
        Scorer.from_checkpoint(file, exact=False, shift="none")


@pytest.mark.parametrize("name", ["lstm", *slow(*(n for n in SOFTMAXES if n != "lstm"))])
def test_an_adaptive_softmax_is_a_start_for_noise(name, training, corpus, tmp_path):
    start, _ = training(*SOFTMAXES[name], *BY_SOFTMAX)
    before = 2 ** loss_bits(evaluate(corpus, start))
    flags = [*SOFTMAXES[name], *ADAM, "--criterion", "bnce", "--noise-samples", "50"]
    flags += ["--finetune-from-model", str(start), "--max-epoch", "10", "--lr", "0.001"]
    printed = train(corpus, tmp_path / "one", *flags, "--max-update", "1", "--lr", "1e-9")
    # Normalisers vary from context to context.
    assert valid_stats(printed)["ppl"] == pytest.approx(before, rel=0.4)
    stats = valid_stats(train(corpus, tmp_path / "more", *flags, "--max-update", "100"))
    assert stats["ppl"] <= 1.03 * before
    assert abs(stats["mu_z"]) < 1


def test_a_tail_that_is_unlikely_everywhere_starts_too():
    softmax = AdaptiveSoftmax(64, 16, [12, 30], 0)
    model = ModuleDict({"decoder": ModuleDict({"adaptive_softmax": softmax})})
    softmax.head.weight.data[12, 0] = -500
    features = torch.randn(50, 16, generator=torch.Generator().manual_seed(1))
    features[:, 0] = 1
    want = softmax.get_log_prob(features[None], None)[0]
    read_as_bands(model)
    softmax.start(features, 0.0)
    found = OutputLayer(model).target_scores(features, torch.arange(64).expand(50, -1))
    assert (found - want).abs().mean() < 0.5


def test_bands_under_another_task_are_refused(pairs):
    flags = ["--task", "translation", "--source-lang", "fr", "--target-lang", "en"]
    flags += ["--arch", "transformer", "--adaptive-softmax-cutoff", "12"]
    for side in ("encoder", "decoder"):
        flags += [f"--{side}-layers", "1", f"--{side}-embed-dim", "16"]
    cfg, task, model = build(pairs, *flags, "--criterion", "bnce")
    criterion = task.build_criterion(cfg.criterion)
    with pytest.raises(UnsupportedModelError):
        criterion(model, first_batch(task))
