"""fairseq's commands on models that are not this plugin's, alone and in ensembles with its own."""

import argparse
import functools
import json
import math
import re
import sys

import forks
import pytest
import torch
from architectures import MODELS
from checkpoint_edits import edited
from fairseq import utils
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from scoring_models import ADAPTIVE
from tools import LSTM, PLUGIN, build, evaluate, first_batch, loss_bits, modern, run, train

from fairseq_bnce.output_layer.layer import SQUASHING_MARK, OutputLayer, squash
from fairseq_bnce.scoring import Scorer

AS_FAIRSEQ = "scored as fairseq does"

# A --user-dir of somebody's. One decoder is not what its parts' names let one expect.
OWN = """
import torch
from fairseq.models import FairseqDecoder, FairseqLanguageModel, register_model
from fairseq.models import register_model_architecture

class Plain(FairseqDecoder):
    def __init__(self, dictionary):
        super().__init__(dictionary)
        self.embed_tokens = torch.nn.Embedding(len(dictionary), 8)
        self.output_projection = torch.nn.Linear(8, len(dictionary))

    def forward(self, tokens, **_):
        return self.output_projection(self.embed_tokens(tokens)), None

class Capped(Plain):
    def forward(self, tokens, **_):
        scores, rest = super().forward(tokens)
        return 3 * scores.tanh(), rest

for kind in (Plain, Capped):
    def build_model(cls, args, task, kind=kind):
        return cls(kind(task.source_dictionary))
    name = "own_" + kind.__name__.lower()
    model = type(name, (FairseqLanguageModel,), {"build_model": classmethod(build_model)})
    register_model(name)(model)
    register_model_architecture(name, name)(lambda args: None)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("somebody") / "own_models"
    folder.mkdir()
    (folder / "__init__.py").write_text(OWN, encoding="utf-8")
    return folder


@pytest.fixture
def capped(training, own):
    """A checkpoint of cross_entropy, trained with the plugin loaded."""
    return training("--user-dir", own, "--arch", "own_capped")[0]


def test_models_of_others_are_scored_as_fairseq_does(corpus, own, capped):
    output = evaluate(corpus, capped, "--user-dir", own)
    stock = evaluate(corpus, capped, "--user-dir", own, plugin=False)
    assert len(re.findall(AS_FAIRSEQ, output)) == 1 and AS_FAIRSEQ not in stock
    assert loss_bits(output) == loss_bits(stock)


@pytest.fixture
def squashed(training):
    """A checkpoint of squashed scores, trained until it matters whether they are."""
    flags = ["--criterion", "self_norm_softmax", "--score-squashing", "--max-epoch", "4"]
    return training(*LSTM, *flags, "--optimizer", "adam", "--lr", "0.03")[0]


def print_bits(own, paths):
    """Of an ensemble by eval-lm's own function: as fairseq does, and with the plugin."""
    from fairseq_cli.eval_lm import eval_lm

    utils.import_user_module(argparse.Namespace(user_dir=str(own)))
    bits, kinds = [], []
    for dataloader in (LanguageModelingTask.eval_lm_dataloader, None):
        models, _, task = load_model_ensemble_and_task(list(map(str, paths)))
        task.load_dataset("valid")
        load = dataloader or type(task).eval_lm_dataloader
        batches = load(task, task.dataset("valid"), batch_size=8, max_positions=512)
        bits.append(float(eval_lm(models, task.source_dictionary, batches)["loss"]))
        kinds.append([type(model).__mro__[1].__name__ for model in models])
    print("RESULT", json.dumps([bits, kinds]))


def test_ensembles_of_all_kinds(own, capped, language_model, squashed):
    """Squashed first: fairseq merges the states of an ensemble's tasks."""
    kinds = [squashed, language_model("lstm_lm"), capped, language_model(ADAPTIVE)]
    done = forks.run([sys.executable], main=functools.partial(print_bits, own, kinds))
    assert not done.returncode, done.stdout.decode()
    line = re.findall("RESULT (.*)", done.stdout.decode())[-1]
    (stock, ours), (_, classes) = json.loads(line)
    assert ours == pytest.approx(stock, abs=1e-5)
    assert [kind == "_Scoring" for kind in classes] == [True, True, False, True]


def log_probs(model, sample):
    """Of the targets, by the model's own scores, and by its projection squashed here."""
    layer = OutputLayer(model)
    own = model(**sample["net_input"])[0]
    features = layer.features(model, sample["net_input"])
    raw = torch.nn.functional.linear(features, *layer.full())
    target = sample["target"].unsqueeze(-1)
    each = (own, 10 * torch.tanh(raw / 5), raw)
    return [scores.log_softmax(-1).gather(2, target)[..., 0] for scores in each]


@pytest.mark.parametrize("name", [*list(MODELS)[:2], *modern(*list(MODELS)[2:])])
@torch.no_grad()
def test_every_decoder_can_be_squashed(name, corpus, pairs):
    """Once, however often it is asked for; also in what generators call, the decoder's forward."""
    _, task, model = build(pairs if "translation" in MODELS[name] else corpus, *MODELS[name])
    sample = first_batch(task)
    for parameter in OutputLayer(model.eval()).parameters():
        parameter.mul_(20)
    squash(model)
    squash(model)
    own, want, raw = log_probs(model, sample)
    torch.testing.assert_close(own, want, rtol=1e-4, atol=1e-4)
    assert (own - raw).abs().max() > 0.1
    if "translation" not in MODELS[name]:
        whole = model(**sample["net_input"])[0]
        assert torch.equal(model.decoder.forward(sample["net_input"]["src_tokens"])[0], whole)


@torch.no_grad()
def test_fairseqs_generators_squash(squashed):
    """As fairseq-generate and fairseq-interactive load and call it: sums are those of Scorer."""
    (model,), _, task = load_model_ensemble_and_task([str(squashed)])
    own, want, raw = log_probs(model.eval(), first_batch(task, "valid"))
    torch.testing.assert_close(own, want)
    assert (own - raw).abs().max() > 0.1
    generator = task.build_generator([model], argparse.Namespace(beam=3, max_len_b=6))
    start = {"src_tokens": torch.tensor([[task.dictionary.eos(), 6]])}
    start["src_lengths"] = torch.tensor([2])
    (best, *_), *_ = task.inference_step(generator, [model], {"net_input": start})
    text = task.dictionary.string(best["tokens"])
    (scores,) = Scorer.from_checkpoint(str(squashed), exact=True).score_words([text])
    assert best["positional_scores"].tolist() == pytest.approx(scores.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["rnn_lm", *modern("transformer_lm")])
def test_fairseqs_interface_from_python(corpus, language_model, name):
    """What ``from_pretrained`` returns draws text from a model, and scores as Scorer does."""
    checkpoint = language_model(name)
    files = (str(checkpoint.parent), checkpoint.name, str(corpus))
    hub = MODEL_REGISTRY[name].from_pretrained(*files, user_dir=PLUGIN).eval()
    text = hub.sample("w1 w2", beam=1, max_len_b=8)
    assert text.startswith("w1 w2")
    (want,) = Scorer.from_checkpoint(str(checkpoint), exact=True).score_words([text])
    scores = hub.score(text)["positional_scores"]  # not that of </s>
    assert scores.tolist() == pytest.approx(want[:-1].tolist(), abs=1e-5)


def test_shallow_fusion(pairs, tmp_path):
    """fairseq-generate --lm-path adds probabilities by id, so the model has the target's words.

    Beside so large a weight the translator's share is none.
    """
    words = ["--srcdict", pairs / "dict.fr.txt", "--destdir", tmp_path / "fr"]
    for split in ("train", "valid"):
        words += [f"--{split}pref", pairs.parent / f"{split}.fr"]
    run("fairseq_cli.preprocess", "--only-source", *words)
    train(tmp_path / "fr", tmp_path / "fr", *LSTM, "--criterion", "bnce", "--disable-validation")
    checkpoint = tmp_path / "fr" / "checkpoint_last.pt"
    train(pairs, tmp_path / "mt", *MODELS["lstm"], "--optimizer", "adam")
    flags = [pairs, "--user-dir", PLUGIN, "--path", tmp_path / "mt" / "checkpoint_last.pt"]
    flags += ["--gen-subset", "valid", "--beam", "2", "--cpu", "--num-workers", "0"]
    flags += ["--max-len-b", "6", "--lm-path", checkpoint, "--lm-weight", "10000"]
    output = run("fairseq_cli.generate", *flags, check=False)
    assert re.search("CheckpointError: .*target.*: required", output)
    output = run("fairseq_cli.generate", *flags, "--source-lang", "en", "--target-lang", "fr")
    texts, scores = (re.findall(rf"^{kind}-\d+\t(.*)", output, re.M) for kind in "HP")
    found = [[float(score) / 1e4 for score in line.split()] for line in scores]
    scorer = Scorer.from_checkpoint(str(checkpoint), exact=True)
    for text, each in zip(texts, found):
        (want,) = scorer.score_words([text.split("\t")[1]])
        assert each == pytest.approx((want / math.log(2)).tolist(), abs=2e-3)
    assert len(texts) == len(scores) > 20


@torch.no_grad()
def test_criteria_on_a_squashed_model(corpus, squashed):
    """As fairseq-validate would use them. Ours, which would take raw scores, refuse."""
    (model,), saved, task = load_model_ensemble_and_task([str(squashed)])
    sample = first_batch(task, "valid")
    words = sample["target"].ne(task.dictionary.pad())
    want = -log_probs(model.eval(), sample)[1][words].sum().item()
    for criterion in (CrossEntropyCriterion(task, False), task.build_criterion(saved.criterion)):
        loss, *_ = criterion.eval()(model, sample)
        assert loss.item() == pytest.approx(want, rel=1e-5)
    cfg, _, _ = build(corpus, *LSTM, "--criterion", "bnce")
    with pytest.raises(ValueError, match="--score-squashing"):
        task.build_criterion(cfg.criterion)


def test_fairseq_alone_stops_at_a_squashed_model(corpus, squashed):
    output = evaluate(corpus, squashed, plugin=False, check=False)
    assert f'Unexpected key(s) in state_dict: "decoder.{SQUASHING_MARK}"' in output


def test_a_squashed_model_of_before_the_mark(corpus, squashed, tmp_path):
    mark = f"decoder.{SQUASHING_MARK}"
    old = edited(squashed, tmp_path / "old.pt", lambda content: content["model"].pop(mark))
    assert loss_bits(evaluate(corpus, old)) == loss_bits(evaluate(corpus, squashed))


def test_another_criterion_cannot_train_a_squashed_model(corpus, squashed, tmp_path):
    flags = [*LSTM, "--finetune-from-model", squashed, "--max-update", "1", "--no-save"]
    output = train(corpus, tmp_path, *flags, "--criterion", "bnce", check=False)
    assert f'Unexpected key(s) in state_dict: "decoder.{SQUASHING_MARK}"' in output
    train(corpus, tmp_path, *flags, "--criterion", "self_norm_softmax", "--score-squashing")


def test_a_decoder_of_others_that_was_trained_here_is_scored_exactly(corpus, own, training):
    """It has been read as the criterion reads it, by its features and its output_projection."""
    checkpoint, _ = training("--user-dir", own, "--arch", "own_plain", "--criterion", "bnce")
    ours = evaluate(corpus, checkpoint, "--user-dir", own)
    stock = evaluate(corpus, checkpoint, "--user-dir", own, plugin=False)
    assert AS_FAIRSEQ not in ours
    assert loss_bits(ours) == pytest.approx(loss_bits(stock), abs=1e-4)
    ours = evaluate(corpus, checkpoint, "--user-dir", own, "--sample-break-mode", "eos")
    score = ["score", "--path", checkpoint, "--exact", "--summary", "--json", "--user-dir", own]
    scored = json.loads(run("fairseq_bnce.cli", *score, corpus.parent / "valid.txt"))
    assert math.log2(scored["ppl_with_oov"]) == pytest.approx(loss_bits(ours), abs=1e-4)
