"""The architectures of fairseq_bnce.models: equations, decoding, presets."""

import math
import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from tools import LSTM, build, first_batch

from fairseq_bnce.models import ffnn_lm, rnn_lm
from fairseq_bnce.optim import row_sparse
from fairseq_bnce.output_layer.layer import OutputLayer

SMALL = {"decoder_embed_dim": 16, "dropout": 0.0}
BOTTLENECK = {"decoder_output_dim": 12, "bottleneck_activation": "relu"}
FFNN = {**SMALL, "context_size": 3, "decoder_hidden_size": 24, "decoder_layers": 2}
RNN = {**SMALL, "decoder_hidden_size": 20, "decoder_layers": 2}
LBL = {**SMALL, "context_size": 3}
TIED = {"share_decoder_input_output_embed": True}
FULL = {"context_matrices": "full"}
BOTH_SIDES = {"bidirectional_context": True}

MODELS = {
    "ffnn": ("ffnn_lm", {**FFNN, **BOTTLENECK}),
    "ffnn bigram tied": ("ffnn_lm", {**FFNN, **TIED, "context_size": 1, "decoder_output_dim": 16}),
    "lstm": ("rnn_lm", {**RNN, **BOTTLENECK}),
    "lstm tied": ("rnn_lm", {**RNN, **TIED, "decoder_hidden_size": None}),
    "gru": ("rnn_lm", {**RNN, "rnn_cell": "gru"}),
    "elman": ("rnn_lm", {**RNN, "rnn_cell": "elman"}),
    "elman relu": ("rnn_lm", {**RNN, "rnn_cell": "elman_relu", "decoder_layers": 1}),
    "lbl": ("lbl_lm", LBL),
    "lbl full": ("lbl_lm", {**LBL, **FULL}),
    "lbl both sides": ("lbl_lm", {**LBL, **BOTH_SIDES}),
    "lbl full both sides tied": ("lbl_lm", {**LBL, **FULL, **BOTH_SIDES, **TIED}),
}


def words(types):
    """A dictionary of this many words, special ones included, and nothing but its size."""
    dictionary = Dictionary()
    for number in range(types - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def made(arch, dictionary, **values):
    """The model of an architecture, as fairseq builds it from these flags."""
    args = Namespace(**values)
    models.ARCH_CONFIG_REGISTRY[arch](args)
    name = models.ARCH_MODEL_NAME_REGISTRY[arch]
    cfg = models.MODEL_DATACLASS_REGISTRY[name].from_namespace(args)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    return models.ARCH_MODEL_REGISTRY[arch].build_model(cfg, task)


@pytest.fixture(scope="module")
def lstm_task(corpus):
    """(task, batch, bnce criterion), and fairseq's lstm_lm."""
    cfg, task, model = build(corpus, *LSTM, "--criterion", "bnce", "--decoder-layers", "2")
    criterion, sample = task.build_criterion(cfg.criterion), first_batch(task)
    return SimpleNamespace(task=task, sample=sample, criterion=criterion, stock=model.eval())


def moved(name, lstm_task):
    """In evaluation mode, with parameters away from where they start."""
    torch.manual_seed(1)
    arch, values = MODELS[name]
    model = made(arch, lstm_task.task.dictionary, **values).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.decoder.embed_tokens.weight[model.decoder.pad] = 0
    return model


@pytest.fixture(params=MODELS)
def model(request, lstm_task):
    return moved(request.param, lstm_task)


@pytest.fixture(params=[name for name in MODELS if "both sides" not in name])
def causal(request, lstm_task):
    return moved(request.param, lstm_task)


TOKENS = torch.tensor([[2, 9, 7, 30, 12, 9, 41, 5], [2, 6, 6, 11, 8, 17, 20, 33]])


def reads(decoder, position, word):
    """Whether the score of the word after ``position`` is to depend on the one at ``word``."""
    if not hasattr(decoder, "context_size"):
        return word <= position
    back = position - decoder.context_size < word <= position
    ahead = position + 2 <= word < position + 2 + decoder.context_size
    return back or (getattr(decoder, "is_bidirectional", False) and ahead)


def test_what_a_score_depends_on(model):
    """On its context alone: neither on other words to come, nor on the one to be predicted."""
    with torch.no_grad():
        before = model(TOKENS)[0]
        for word in range(TOKENS.size(1)):
            changed = TOKENS.clone()
            changed[:, word] = 50
            differs = (model(changed)[0] - before).abs().amax(dim=(0, 2)) > 1e-6
            positions = range(TOKENS.size(1))
            assert differs.tolist() == [reads(model.decoder, p, word) for p in positions]


def test_padding_changes_nothing(model):
    with torch.no_grad():
        padded = torch.nn.functional.pad(TOKENS, (0, 3), value=model.decoder.pad)
        torch.testing.assert_close(model(padded)[0][:, : TOKENS.size(1)], model(TOKENS)[0])


def test_incremental_is_whole(causal):
    """Word by word, after the first few at once."""
    state, ends = {}, range(4, TOKENS.size(1) + 1)
    with torch.no_grad():
        steps = [causal(TOKENS[:, :end], incremental_state=state)[0] for end in ends]
        torch.testing.assert_close(torch.cat(steps, dim=1), causal(TOKENS)[0], rtol=0, atol=1e-5)


def test_beam_search_scores_as_the_whole_sequence_does(causal):
    """Word by word from the first, with beams that change places on the way."""
    dictionary = causal.decoder.dictionary
    generator = SequenceGenerator([causal], dictionary, beam_size=3, max_len_b=8, min_len=4)
    start = TOKENS[:, 1:3]
    sample = {"net_input": {"src_tokens": start, "src_lengths": torch.tensor([2, 2])}}
    for given, beams in zip(start, generator.generate([causal], sample, prefix_tokens=start)):
        for beam in beams:
            assert beam["tokens"][:2].tolist() == given.tolist()
            read = torch.cat([TOKENS[0, :1], beam["tokens"][:-1]])[None]
            with torch.no_grad():
                log_probs = causal(read)[0].log_softmax(-1)[0]
            want = log_probs.gather(1, beam["tokens"][:, None])[:, 0]
            torch.testing.assert_close(beam["positional_scores"], want, rtol=0, atol=1e-5)


def test_incremental_decoding_with_words_of_both_sides_is_refused():
    model = made("lbl_lm", words(20), **LBL, **BOTH_SIDES)
    with pytest.raises(ValueError, match="--bidirectional-context"):
        model(TOKENS.clamp(max=19), incremental_state={})


def test_lstm_is_fairseqs(lstm_task):
    """With lstm_lm's weights, also where dropout is left in its three places."""
    dictionary = lstm_task.task.dictionary
    size = {"decoder_embed_dim": 16, "decoder_layers": 2}
    ours = made("rnn_lm", dictionary, **size, decoder_dropout_in=0.3).eval()
    state = {}
    for name, value in lstm_task.stock.state_dict().items():
        name = re.sub(r"layers\.(\d)\.(\w+)", r"rnn.\2_l\1", name)
        state[name.replace("fc_out", "output_projection")] = value
    ours.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(ours(TOKENS)[0], lstm_task.stock(TOKENS)[0])


def test_ffnn_against_its_equation():
    model = made("ffnn_lm", words(60), **FFNN, **BOTTLENECK, activation="tanh").eval()
    decoder, padded = model.decoder, [2, 2, *TOKENS[0].tolist()]
    with torch.no_grad():
        found = model(TOKENS, features_only=True)[0][0]
        for position in range(TOKENS.size(1)):
            embedded = [decoder.embed_tokens.weight[w] for w in padded[position : position + 3]]
            hidden = torch.cat(embedded)
            for layer, squash in zip(decoder.layers, (torch.tanh, torch.tanh, torch.relu)):
                hidden = squash(layer[0].weight @ hidden + layer[0].bias)
            torch.testing.assert_close(found[position], hidden, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_lbl_against_its_equation(kind):
    """On words of both sides: </s> before the first, nothing after the last."""
    values = {**LBL, **BOTH_SIDES, "context_matrices": kind}
    decoder = made("lbl_lm", words(60), **values).eval().decoder
    matrices = decoder.context_weight
    with torch.no_grad():
        # The mean of the context, to start with.
        torch.testing.assert_close(matrices.flatten(1).sum(1), torch.full((6,), 16 / 6))
        matrices.copy_(torch.randn_like(matrices))
        got = decoder(TOKENS, features_only=True)[0][0]
        tokens = [2, 2, *TOKENS[0].tolist(), 1, 1, 1, 1]
        for position in range(TOKENS.size(1)):
            context = tokens[position : position + 3] + tokens[position + 4 : position + 7]
            want = torch.zeros(16)
            for matrix, word in zip(matrices, context):
                vector = decoder.embed_tokens.weight[word]
                want += vector * matrix if kind == "diagonal" else vector @ matrix
            torch.testing.assert_close(got[position], want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", rnn_lm._CELLS)
def test_state_can_be_carried_on(cell):
    decoder = made("rnn_lm", words(60), **RNN, rnn_cell=cell).eval().decoder
    whole = decoder(TOKENS)[0]
    first = decoder(TOKENS[:, :5])[0]
    state = decoder.final_state
    assert not any(part.requires_grad for part in state)
    assert [part.shape for part in state] == [(2, 2, 20)] * (2 if cell == "lstm" else 1)
    anew = decoder(TOKENS[:, 5:])[0]
    decoder.carried_state = state
    carried = decoder(TOKENS[:, 5:])[0]
    assert not torch.allclose(anew, carried)
    torch.testing.assert_close(torch.cat([first, carried], dim=1), whole)


def test_dropout_in_three_places():
    own = {"decoder_dropout_in": 0.2, "decoder_dropout_between": 0.3, "decoder_dropout_out": 0.4}
    for flags, want in (({}, (0.1, 0.1, 0.1)), (own, (0.2, 0.3, 0.4))):
        sizes = {"decoder_layers": 2, "decoder_output_dim": 8}
        decoder = made("rnn_lm", words(9), dropout=0.1, **sizes, **flags).decoder
        places = decoder.dropout_in.p, decoder.rnn.dropout, decoder.dropout_out.p
        assert places == want and decoder.bottleneck[2].p == want[2]


@pytest.mark.parametrize("arch", ["ffnn_lm", "rnn_lm", "lbl_lm"])
def test_weights_start_as_they_are_said_to(arch):
    torch.manual_seed(1)
    decoder = made(arch, words(500), init_range=0.01).decoder
    for weight in (decoder.embed_tokens.weight, decoder.output_projection.weight):
        assert 0.009 < weight.abs().max() <= 0.01
    assert not decoder.embed_tokens.weight[decoder.pad].any()
    for linear in (m for m in decoder.modules() if isinstance(m, torch.nn.Linear)):
        if linear is not decoder.output_projection:  # Glorot & Bengio's bound, for ReLU
            bound = math.sqrt(2) * math.sqrt(6 / sum(linear.weight.shape))
            assert 0.95 * bound < linear.weight.abs().max() <= bound
            assert not linear.bias.any()


@pytest.mark.parametrize("name", MODELS)
def test_row_sparse_gradients_are_the_dense_ones(name, lstm_task):
    arch, values = MODELS[name]
    torch.manual_seed(2)
    model = made(arch, lstm_task.task.dictionary, **values)
    dense = gradients(model, lstm_task)
    assert all(not gradient.is_sparse for gradient in dense.values())
    row_sparse.mark(model, *OutputLayer(model).parameters())
    names = model._ddp_params_and_buffers_to_ignore
    sparse = gradients(model, lstm_task)
    assert {name for name, gradient in sparse.items() if gradient.is_sparse} <= set(names)
    assert sparse["decoder.embed_tokens.weight"].is_sparse
    assert sparse["decoder.output_projection.bias"].is_sparse
    for parameter, gradient in dense.items():
        torch.testing.assert_close(sparse[parameter].to_dense(), gradient, msg=parameter)


def gradients(model, lstm_task):
    model.zero_grad(set_to_none=True)
    lstm_task.criterion(model.train(), lstm_task.sample)[0].backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert None not in found.values()
    return found


def test_presets_are_the_papers():
    """What their parameters' number does not tell: (cell, bottleneck's activation, dropout)."""
    for name in rnn_lm.PRESETS:
        cfg = models.MODEL_DATACLASS_REGISTRY[name]()
        found = str(cfg.rnn_cell), str(cfg.bottleneck_activation), cfg.dropout, cfg.init_range
        if "_gm" in name:
            assert found == ("lstm", "none", 0.5, 0.05)
        elif name == "rnn_lm_zoph":
            assert found == ("lstm", "none", 0.2, 0.1)
        else:
            activation = "relu" if "_relu_" in name else "none"
            assert found == ("elman" if name.endswith("_rnn") else "lstm", activation, 0.0, 0.1)


def count(preset, types):
    """Parameters at a vocabulary of this size, from a model whose vocabulary is tiny."""
    tiny = 11
    parameters = list(made(preset, words(tiny)).parameters())
    of_a_word = [parameter[0].numel() for parameter in parameters if len(parameter) == tiny]
    assert len(of_a_word) == 3  # both embeddings and the output bias
    return sum(map(torch.numel, parameters)) + (types - tiny) * sum(of_a_word)


# What fairseq-preprocess makes of 80,000 types: its four special ones besides, in eights.
LTCB, OBWB = 80_008, 793_471
# Vocabulary and parameters: those of Oualil & Klakow 2017, tables 1 and 3, then those that the
# docstrings of the other presets state.
COUNTS = {
    "ffnn_lm_ltcb": (LTCB, 48.8e6),
    "rnn_lm_ltcb_rnn": (LTCB, 64.6e6),
    "rnn_lm_ltcb_relu_rnn": (LTCB, 48.8e6),
    "rnn_lm_ltcb_lstm": (LTCB, 66.0e6),
    "rnn_lm_ltcb_relu_lstm": (LTCB, 50.3e6),
    "ffnn_lm_obwb": (OBWB, 0.88e9),
    "rnn_lm_obwb_rnn": (OBWB, 1.59e9),
    "rnn_lm_obwb_relu_rnn": (OBWB, 0.88e9),
    "rnn_lm_obwb_lstm": (OBWB, 1.60e9),
    "rnn_lm_obwb_relu_lstm": (OBWB, 0.89e9),
    "rnn_lm_gm650": (10_000, 19.8e6),
    "rnn_lm_zoph": (OBWB, 3.39e9),
    "lbl_lm_ptb": (10_000, 2.0e6),
    "lbl_lm_mscc": (80_000, 48.1e6),
}


@pytest.mark.parametrize("preset", COUNTS)
def test_parameters_are_as_many_as_the_papers_say(preset):
    types, want = COUNTS[preset]
    digits = 1e5 if want < 1e8 else 1e7  # the last one stated
    assert round(count(preset, types) / digits) == round(want / digits)


@pytest.mark.parametrize("sizes, types", [((8, 9), (10, 10)), ((8, 8), (10, 9))])
def test_tied_embeddings_must_fit(sizes, types):
    source, target = map(words, types)
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    values = dict(zip(("decoder_embed_dim", "decoder_hidden_size"), sizes))
    cfg = models.MODEL_DATACLASS_REGISTRY["ffnn_lm"](**TIED, **values)
    with pytest.raises(ValueError, match="--share-decoder-input-output-embed"):
        ffnn_lm.FeedForwardModel.build_model(cfg, task)
