"""The main job, through fairseq's own commands: train, validate, evaluate both ways, resume."""

import json
import math
import re

import pytest
import torch
from checkpoint_edits import edited
from criteria import FLAGS
from scoring_models import BANDS
from test_streams import STATEFUL
from tools import (
    LSTM,
    TIED_TRANSFORMER,
    build,
    evaluate,
    loss_bits,
    parameters,
    perplexity,
    resumed,
    slow,
    train,
    valid_stats,
    validated,
)

from fairseq_bnce import Scorer
from fairseq_bnce.scoring import ScoringError

# A decoder without an output bias starts at log Z_c = log V, 4.2 here.
ARCHITECTURES = {"lstm_lm": LSTM, "transformer_lm tied": [*TIED_TRANSFORMER, "--log-z", "4"]}
ARCHITECTURES["bands"] = [*BANDS, "--log-z", "4"]


def test_every_registered_criterion_is_in_this_table():
    from fairseq.criterions import CRITERION_REGISTRY

    ours = {n for n, c in CRITERION_REGISTRY.items() if "fairseq_bnce" in c.__module__}
    assert ours == {name.split()[0] for name in FLAGS}


@pytest.fixture
def trained(training):
    """Train a criterion on an architecture: (checkpoint, what fairseq-train printed)."""

    def make(criterion, architecture):
        flags = [*ARCHITECTURES[architecture], "--criterion", criterion]
        return training(*flags, *FLAGS[criterion])

    return make


# Each criterion with one architecture, and one with the others.
CRITERIA = [name for name in FLAGS if " " not in name]
TRAINED = [(name, "lstm_lm") for name in CRITERIA]
TRAINED += [("bnce", "transformer_lm tied"), ("bnce", "bands")]
TRAINED += slow(*((name, "transformer_lm tied") for name in CRITERIA if name != "bnce"))


@pytest.mark.parametrize("criterion, architecture", TRAINED)
def test_train_validate_and_evaluate_both_ways(criterion, architecture, corpus, trained):
    checkpoint, output = trained(criterion, architecture)
    stats = valid_stats(output)
    state = torch.load(checkpoint, weights_only=False)["task_state"]
    log_z = 0 if architecture == "lstm_lm" else 4
    want = None if criterion == "sampled_softmax" else log_z
    assert (state.get("log_z") == want) == ("--learn-log-z" not in FLAGS[criterion])
    assert state["mu_z"] == pytest.approx(stats["mu_z"], abs=1e-4)
    assert state["sigma_z"] == pytest.approx(stats["sigma_z"], abs=1e-4)
    assert stats["ppl"] == pytest.approx(2 ** stats["loss"], rel=2e-3)
    # Exact log-probabilities are unnormalised ones minus log Z_c - log Z, whose mean is mu_z.
    # (u_ppl is logged with two decimals, and is below 1 where scores are not normalised to log Z.)
    rounding = 0.006 / stats["u_ppl"]
    want = stats["u_ppl"] * math.exp(state["mu_z"])
    assert stats["ppl"] == pytest.approx(want, rel=max(5e-3, rounding))
    exact = evaluate(corpus, checkpoint)
    assert perplexity(exact) == pytest.approx(stats["ppl"], rel=1e-3)
    plain = evaluate(corpus, checkpoint, "--unnormalized", "--log-z-shift", "none")
    assert perplexity(plain) == pytest.approx(stats["u_ppl"], abs=0.011)
    shifted = evaluate(corpus, checkpoint, "--unnormalized")
    nats = (loss_bits(shifted) - loss_bits(plain)) * math.log(2)
    assert nats == pytest.approx(state["mu_z"], abs=3e-4)
    # fairseq-validate repeats the validation.
    assert validated(corpus, checkpoint)["loss"] == pytest.approx(stats["loss"], abs=2e-3)


@pytest.mark.parametrize("architecture", ["lstm_lm", *slow("transformer_lm tied")])
def test_stock_fairseq_reads_the_checkpoint(architecture, corpus, trained):
    """--softmax-batch hands the targets over in parts."""
    checkpoint, _ = trained("bnce", architecture)
    stock = evaluate(corpus, checkpoint, plugin=False)
    assert "fairseq_bnce" not in stock
    for flags in ([], ["--softmax-batch", "7"]):
        ours = evaluate(corpus, checkpoint, *flags)
        assert loss_bits(stock) == pytest.approx(loss_bits(ours), abs=1e-4)


def test_blocks_longer_than_the_model_takes_are_cut_not_skipped(corpus, trained):
    """fairseq itself evaluates no token then, and reports a perplexity of 1."""
    checkpoint, _ = trained("bnce", "lstm_lm")
    output = evaluate(corpus, checkpoint, "--tokens-per-sample", "1024")
    assert "this model takes at most 16 tokens" in output
    assert loss_bits(output) == loss_bits(evaluate(corpus, checkpoint))


def test_log_z_travels_in_the_checkpoint(corpus, tmp_path):
    """With log Z = 9 the output bias starts at log q + 9, and scores are about 9 nats up."""
    output = train(corpus, tmp_path, *LSTM, "--criterion", "bnce", "--log-z", "9")
    stats = valid_stats(output)
    assert abs(stats["mu_z"]) < 1
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert torch.load(checkpoint, weights_only=False)["task_state"]["log_z"] == 9
    output = evaluate(corpus, checkpoint, "--unnormalized", "--log-z-shift", "0.25")
    assert "m - log Z - shift, log Z 9, shift 0.2500 nats" in output
    shifted = perplexity(evaluate(corpus, checkpoint, "--unnormalized"))
    assert shifted == pytest.approx(stats["ppl"], rel=1e-3)
    edited(checkpoint, checkpoint, lambda content: content["task_state"].pop("mu_z"))
    output = evaluate(corpus, checkpoint, "--unnormalized")
    assert "this checkpoint was saved before any validation: no mu_z, shift 0" in output
    assert "diagnose --calibrate" in output


CROSS_ENTROPY = [*LSTM, "--criterion", "cross_entropy", "--max-epoch", "2", "--dropout", "0.2"]


def test_cross_entropy_checkpoint_says_that_it_is_not_self_normalised(corpus, training):
    checkpoint, _ = training(*CROSS_ENTROPY, plugin=False)
    refused = evaluate(corpus, checkpoint, "--unnormalized", check=False)
    assert "carries no log Z" in refused
    by_shift = ["--unnormalized", "--log-z-shift"]
    scored, shifted = (evaluate(corpus, checkpoint, *by_shift, shift) for shift in ("4", "5"))
    assert "not self-normalised" in scored
    nats = (loss_bits(shifted) - loss_bits(scored)) * math.log(2)
    assert nats == pytest.approx(1, abs=2e-4)
    with pytest.raises(ScoringError):
        Scorer.from_checkpoint(checkpoint)
    lines = (corpus.parent / "valid.txt").read_text().splitlines()
    scored = Scorer.from_checkpoint(checkpoint, shift=4.0).perplexity(lines)
    sentences = evaluate(corpus, checkpoint, "--sample-break-mode", "eos", *by_shift, "4")
    assert math.log2(scored) == pytest.approx(loss_bits(sentences), abs=2e-4)
    stock = evaluate(corpus, checkpoint, plugin=False)
    assert loss_bits(evaluate(corpus, checkpoint)) == pytest.approx(loss_bits(stock), abs=1e-4)


def test_cross_entropy_trains_as_without_the_plugin(corpus, training, tmp_path):
    """The same parameters and logged numbers, times aside, of several epochs."""
    checkpoint, output = training(*CROSS_ENTROPY, plugin=False)
    want, got = map(results, (output, train(corpus, tmp_path, *CROSS_ENTROPY)))
    assert want == got
    assert [{*one} >= {"valid_loss"} for one in want] == [True, False] * 2
    trained = parameters(tmp_path / "checkpoint_last.pt")
    assert all(torch.equal(trained[name], value) for name, value in parameters(checkpoint).items())


def results(output):
    names = ("loss", "ppl", "gnorm", "updates", "epoch", "lr")
    lines = map(json.loads, re.findall(r"(?:train|valid) \| (\{\".*\})", output))
    return [{k: v for k, v in one.items() if k.rsplit("_", 1)[-1] in names} for one in lines]


SHARED = [*LSTM, "--criterion", "shared_nce", *FLAGS["shared_nce"], "--dropout", "0.2"]
REGULARIZED = ["--criterion", "nce_regularized", *FLAGS["nce_regularized"]]
ROW_SPARSE = [*TIED_TRANSFORMER, "--criterion", "bnce", "--row-sparse", "--log-z", "4"]
ROW_SPARSE += ["--lr", "0.01", "--noise-samples", "3", "--clip-norm", "0.1", "--optimizer"]
# Tied, an LSTM has no output bias; a transformer's biases that do nothing differ by 1e-27.
MEASURED = [*LSTM, "--share-decoder-input-output-embed", "--criterion", "bnce", "--dropout", "0.2"]
RESUMED = {"shared": SHARED, "row-sparse": [*ROW_SPARSE, "lazy_adam", "--learn-log-z"]}
RESUMED["row-sparse"] += ["--dense-lr-scale", "0.5"]
RESUMED["stateful"] = [*STATEFUL, "--update-freq", "3"]
RESUMED["measured"] = [*MEASURED, "--update-freq", "2"]
RESUMED_SLOWLY = {"regularized": [*SHARED, *REGULARIZED], "learned": [*MEASURED, "--learn-log-z"]}
RESUMED_SLOWLY["row-sparse rowwise"] = [*ROW_SPARSE, "rowwise_adagrad"]


@pytest.mark.parametrize("name", [*RESUMED, *slow(*RESUMED_SLOWLY)])
def test_resumed_run_repeats_the_uninterrupted_one(name, corpus, tmp_path):
    """Its log Z, shift and, in the midst of an epoch, recurrent state go on, too."""
    flags = {**RESUMED, **RESUMED_SLOWLY}[name]
    flags = [*flags, "--save-interval-updates", "5", "--max-epoch", "3"]
    whole, parts = resumed(corpus, tmp_path, *flags, after=5, until=12)
    assert valid_stats(parts)["loss"] == valid_stats(whole)["loss"]
    folders = tmp_path / "whole", tmp_path / "parts"
    checkpoint, other = (folder / "checkpoint_last.pt" for folder in folders)
    state, again = (torch.load(c, weights_only=False)["task_state"] for c in (checkpoint, other))
    assert state == again
    # fairseq-validate, too, knows a log Z that was measured or learned.
    assert name != "measured" or state["log_z"] > 3
    assert name != "row-sparse" or state["log_z"] != 4
    assert validated(corpus, checkpoint)["mu_z"] == pytest.approx(state["mu_z"], abs=2e-4)


BY_EPOCH = [
    (["bnce"], "--noise-samples", ("0", "7")),
    *slow((["bnce", "--objective", "ranking"], "--self-norm-alpha", ("2", "0.5"))),
    *slow((["nce_regularized"], "--self-norm-alpha", ("0", "2"))),
]


@pytest.mark.modern
@pytest.mark.parametrize("criterion, flag, values", BY_EPOCH)
def test_a_value_by_epoch(criterion, flag, values, corpus, tmp_path):
    """As an epoch with the first one, from which a run with the other goes on.

    Interrupted both: fairseq makes other batches where it starts an epoch anew.
    """
    flags, (first, then) = [*LSTM, "--dropout", "0.2", "--criterion", *criterion], values
    by_epoch = [f"{flag}-by-epoch", f"{first},{then}"]
    train(corpus, tmp_path / "whole", *flags, *by_epoch)
    train(corpus, tmp_path / "whole", *flags, *by_epoch, "--max-epoch", "3")
    train(corpus, tmp_path / "parts", *flags, flag, first)
    train(corpus, tmp_path / "parts", *flags, flag, then, "--max-epoch", "3")
    want = parameters(tmp_path / "parts" / "checkpoint_last.pt")
    got = parameters(tmp_path / "whole" / "checkpoint_last.pt")
    assert all(torch.equal(got[name], value) for name, value in want.items())


@pytest.mark.modern
def test_partition_rate(corpus, tmp_path):
    """A sampled log Z_c estimates the exact perplexity within its standard errors; 0 costs none."""
    flags = [*LSTM, "--criterion", "bnce", "--valid-partition-rate", "0", "--lr", "8"]
    none = valid_stats(train(corpus, tmp_path, *flags))
    assert {"ppl", "mu_z", "sigma_z"}.isdisjoint(none)
    assert 2 ** none["loss"] == pytest.approx(none["u_ppl"], rel=2e-3)
    checkpoint, rate = tmp_path / "checkpoint_last.pt", "{'valid_partition_rate': %s}"
    exact, sampled = (validated(corpus, checkpoint, rate % share) for share in (1, 0.3))
    assert sampled["u_ppl"] == none["u_ppl"] == exact["u_ppl"]
    assert 0 < sampled["ppl_se"] < 0.05 * exact["ppl"]
    assert abs(sampled["ppl"] - exact["ppl"]) < 4 * sampled["ppl_se"]
    assert "ppl_se" not in exact


def test_bfloat16_needs_no_tpu(corpus, tmp_path):
    """fairseq takes the flag for one, and would look for torch_xla's device."""
    flags = [*LSTM, "--criterion", "bnce", "--row-sparse", "--optimizer", "lazy_adam"]
    train(corpus, tmp_path, *flags, "--max-epoch", "1", "--memory-efficient-bf16")
    rows = parameters(tmp_path / "checkpoint_last.pt")["decoder.fc_out.weight"]
    assert torch.equal(rows, rows.bfloat16().float())


@pytest.mark.parametrize("flags", [["medium"], []])
def test_matmul_precision_of_training_and_eval_lm(flags, corpus, monkeypatch):
    """torch's, in fairseq-train and eval-lm, and in nobody else's process."""
    told, flag = [], ["--matmul-precision"] * len(flags)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", told.append)
    _, task, model = build(corpus, *LSTM, "--criterion", "bnce", *flag, *flags)
    task.load_dataset("valid")
    assert told == []
    task.begin_epoch(1, model)
    assert told == flags
    task.eval_lm_dataloader(task.dataset("valid"), max_tokens=100, max_positions=50)
    assert told == flags * 2
