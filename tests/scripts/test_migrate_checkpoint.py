"""Changing criteria in mid-training, with the commands of docs/adaptive-softmax.md."""

import re
import shutil

import forks
import migrate_checkpoint
import pytest
import torch
from checkpoint_edits import Malicious
from fairseq.modules import AdaptiveSoftmax
from tools import LSTM, PLUGIN, TRAINING, TRANSFORMER, evaluate, perplexity, train, write_lines

MODEL = [*LSTM, "--max-epoch", "2"]
ADAPTIVE = ["--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "12"]
ADAPTIVE += ["--ddp-backend", "legacy_ddp"]
# Until it knows of contexts: a new output layer starts as the unigram model, which has 35.
LONGER = ["--optimizer", "adam", "--lr", "0.02", "--max-epoch", "5"]
UNIGRAM = 35
BNCE = ["--criterion", "bnce", "--row-sparse", "--optimizer", "sparse_sgd"]
SOFTMAX = ["--criterion", "cross_entropy"]
# fairseq's four flags for "these weights, and nothing else of that training".
RESET = ["--reset-optimizer", "--reset-lr-scheduler", "--reset-meters", "--reset-dataloader"]


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A checkpoint of each criterion by its name."""
    folder = tmp_path_factory.mktemp("trained")
    adaptive = [*ADAPTIVE, *LONGER]
    for name, flags in (("adaptive", adaptive), ("bnce", BNCE), ("softmax", SOFTMAX)):
        train(corpus, folder / name, *MODEL, *flags)
    return {path.parent.name: path for path in folder.glob("*/checkpoint_best.pt")}


def migrate(corpus, checkpoint, out, *flags):
    training = [corpus, "--user-dir", PLUGIN, "--task", "language_modeling", *TRAINING, *flags]
    return forks.script("migrate_checkpoint.py", checkpoint, "--out", out, "--", *training)


def first_perplexity(output):
    """Of the first validation of a training."""
    return float(re.search(r'"valid_ppl": "([\d.]+)"', output).group(1))


def test_without_the_flags_of_a_training(trained, tmp_path):
    arguments = [trained["softmax"], "--out", tmp_path / "new.pt"]
    status, output = forks.script("migrate_checkpoint.py", *arguments)
    assert status == 2 and "--: required the flags of the fairseq-train that is to" in output


def test_fairseq_alone_refuses_an_adaptive_checkpoint(corpus, trained, tmp_path):
    flags = [*MODEL, *BNCE, "--finetune-from-model", trained["adaptive"]]
    output = train(corpus, tmp_path, *map(str, flags), check=False)
    assert "Missing key(s)" in output and "decoder.fc_out.weight" in output


@pytest.mark.parametrize(
    "own, tied",
    [
        (["--decoder-output-dim", "20"], []),
        (
            ["--adaptive-input", "--adaptive-input-cutoff", "12", "--adaptive-input-factor", "2"],
            ["--tie-adaptive-weights", "--tie-adaptive-proj", "--adaptive-softmax-factor", "2"],
        ),
    ],
    ids=["plain", "adaptive input"],
)
def test_a_transformer_keeps_it_without_a_bias(corpus, tmp_path, own, tied):
    """One feature, made constant, carries what the bias would."""
    model = [*TRANSFORMER, *own, "--max-epoch", "4"]
    train(corpus, tmp_path, *model, *ADAPTIVE, *tied, *LONGER)
    adaptive, start = tmp_path / "checkpoint_best.pt", tmp_path / "start.pt"
    status, output = migrate(corpus, adaptive, start, *model, "--criterion", "bnce")
    assert status == 0, output
    assert "made of the adaptive softmax: decoder.output_projection.weight" in output
    before, exact = (perplexity(evaluate(corpus, at)) for at in (adaptive, start))
    assert exact < 1.4 * before < UNIGRAM
    assert perplexity(evaluate(corpus, start, "--unnormalized")) == pytest.approx(exact, rel=0.1)


def test_an_adaptive_softmax_becomes_a_projection_that_bnce_trains_on(corpus, trained, tmp_path):
    start = tmp_path / "start.pt"
    status, output = migrate(corpus, trained["adaptive"], start, *MODEL, *BNCE)
    assert status == 0, output
    assert "made of the adaptive softmax: decoder.fc_out.bias, decoder.fc_out.weight" in output
    assert "left out: decoder.adaptive_softmax.head.weight" in output
    before, after = (perplexity(evaluate(corpus, at)) for at in (trained["adaptive"], start))
    assert after < 1.1 * before < UNIGRAM
    # The constants are in the bias, so that log Z is 0, which the checkpoint says.
    raw = evaluate(corpus, start, "--unnormalized")
    assert perplexity(raw) == pytest.approx(after, rel=0.1)
    flags = [*MODEL, *BNCE, "--log-z", "0", "--finetune-from-model", str(start)]
    output = train(corpus, tmp_path / "bnce", *flags)
    assert first_perplexity(output) < 1.05 * before
    assert "Loaded checkpoint" in output


@pytest.mark.parametrize("old, new", [("softmax", BNCE), ("bnce", SOFTMAX)])
def test_softmax_and_bnce_share_their_checkpoints(corpus, trained, tmp_path, old, new):
    before = perplexity(evaluate(corpus, trained[old]))
    ways = (["--finetune-from-model", str(trained[old])], ["--restore-file", str(trained[old])])
    for place, way in enumerate(ways):
        reset = RESET if place else []
        log_z = (
            ["--log-z", "4"] if new is BNCE else []
        )  # about log V, where cross_entropy leaves it
        output = train(corpus, tmp_path / str(place), *MODEL, *new, *log_z, *way, *reset)
        assert f"Loaded checkpoint {trained[old]}" in output
        assert first_perplexity(output) < 1.1 * before


def test_the_way_to_an_adaptive_softmax_keeps_all_but_the_output_layer(corpus, trained, tmp_path):
    start = tmp_path / "start.pt"
    status, output = migrate(corpus, trained["bnce"], start, *MODEL, *ADAPTIVE)
    assert status == 0, output
    assert "new, as at the start of a training: decoder.adaptive_softmax.head.weight" in output
    assert "left out: decoder.fc_out.bias, decoder.fc_out.weight" in output
    old, new = (torch.load(str(at), weights_only=False) for at in (trained["bnce"], start))
    kept = set(old["model"]) & set(new["model"])
    assert "decoder.embed_tokens.weight" in kept and len(kept) == len(old["model"]) - 2
    assert all(torch.equal(old["model"][name], new["model"][name]) for name in kept)
    flags = [*MODEL, *ADAPTIVE, "--finetune-from-model", str(start)]
    assert "Loaded checkpoint" in train(corpus, tmp_path / "adaptive", *flags)


def test_what_cannot_be_migrated_is_said(corpus, trained, tmp_path):
    status, output = migrate(corpus, tmp_path / "no.pt", tmp_path / "out.pt", *MODEL, *BNCE)
    assert status == 2 and "no.pt: required a checkpoint of fairseq-train" in output
    other = [*MODEL, *BNCE, "--decoder-embed-dim", "8", "--decoder-hidden-size", "8"]
    status, output = migrate(corpus, trained["softmax"], tmp_path / "out.pt", *other)
    message = "decoder.embed_tokens.weight: required shape (64, 8) by the new flags, got (64, 16)"
    assert status == 2 and message in output
    assert not (tmp_path / "out.pt").exists()


@pytest.mark.parametrize("old, new", [("softmax", BNCE), ("bnce", ADAPTIVE)])
def test_words_stay_those_of_the_rows(corpus, trained, tmp_path, old, new):
    """Of another dictionary of the same size every row would be another word's."""
    other = shutil.copytree(corpus, tmp_path / "other")
    head, *rest = (corpus / "dict.txt").read_text("utf-8").splitlines()
    write_lines(other / "dict.txt", [*rest, head])
    status, output = migrate(other, trained[old], tmp_path / "out.pt", *MODEL, *new)
    message = f"data: required the dict.txt that {trained[old]} was trained with"
    assert status == 2 and message in output and not (tmp_path / "out.pt").exists()
    status, output = migrate(corpus, trained[old], tmp_path / "out.pt", *MODEL, *new)
    assert status == 0, output
    words = [
        torch.load(str(path), weights_only=False)["task_state"]["dictionary_sha256"]
        for path in (trained[old], tmp_path / "out.pt")
    ]
    assert words[0] == words[1]


def test_nothing_in_a_checkpoint_is_run(corpus, tmp_path):
    torch.save({"model": Malicious(tmp_path / "made")}, tmp_path / "bad.pt")
    flags = [*MODEL, *SOFTMAX]
    status, output = migrate(corpus, tmp_path / "bad.pt", tmp_path / "out.pt", *flags)
    assert status == 2 and "nothing in it was run" in output
    assert not (tmp_path / "made").exists()


def test_a_folded_softmax_is_the_adaptive_one_where_normalisers_are_constant():
    """With features of one context every normaliser is a constant."""
    torch.manual_seed(1)
    softmax = AdaptiveSoftmax(30, 16, [5, 12], dropout=0.5).eval()
    features = torch.randn(1, 16)
    with torch.no_grad():
        head = softmax.head(features).logsumexp(1)[0]
        tails = torch.stack([tail(features).logsumexp(1)[0] for tail in softmax.tail])
        normalisers = migrate_checkpoint.Normalisers(head, tails)
        weight, bias = migrate_checkpoint.folded(softmax, normalisers)
        expected = softmax.get_log_prob(features[None], None)[0]
    assert torch.allclose(features @ weight.t() + bias, expected, atol=1e-5)
