"""Where log Z starts: a number, a checkpoint's, a bias's, or measured on the first batch."""

import contextlib
import itertools
import logging
import math
import os
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from architectures import LIGHTCONV, SEQ2SEQ
from checkpoint_edits import edited
from criteria import make, prepared, set_log_z, with_targets
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER, build, modern, train, valid_stats
from two_ranks import on_two_ranks

from fairseq_bnce import losses
from fairseq_bnce.checkpoints import origin
from fairseq_bnce.losses.words import Words

AUTO = ["--criterion", "bnce"]
# Without the unigram scores of test_initial_scores.py, so that log Z is near log V.
RANDOM_START = [*TRANSFORMER, "--init-output-bias", "none"]


def saved(folder, name="checkpoint_last.pt"):
    return torch.load(folder / name, map_location="cpu", weights_only=False)


def task_state(folder):
    return saved(folder)["task_state"]


def logged(output):
    """The one line about log Z."""
    (line,) = [line for line in output.splitlines() if " | log Z: " in line]
    return line.split(" | log Z: ")[1]


def mean_log_z(criterion, model, sample):
    batch = prepared(criterion, model, sample)
    with torch.no_grad():
        return losses.log_partition(batch.features, *batch.layer.full()).mean().item()


# Which checkpoint training continues from.


@pytest.mark.parametrize("restore", ["checkpoint_last.pt", "other.pt"])
@pytest.mark.parametrize("suffix", ["", "-x"])
def test_the_file_is_the_one_that_fairseq_loads(restore, suffix, tmp_path, monkeypatch):
    """fairseq's own load_checkpoint, up to the call of the trainer's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("once.pt", "tuned.pt", "other.pt", "other-x.pt"):
        (tmp_path / name).touch()
    last = tmp_path / "run" / f"checkpoint_last{suffix}.pt"
    for once, tuned, exists in itertools.product([None, "once.pt"], [None, "tuned.pt"], [0, 1]):
        last.touch() if exists else last.exists() and last.unlink()
        choice = SimpleNamespace(save_dir="run", restore_file=restore, checkpoint_suffix=suffix)
        choice.continue_once, choice.finetune_from_model = once, tuned
        asked = asked_for(choice)
        if asked is None:
            assert restore != "checkpoint_last.pt" and tuned
        else:
            assert origin.chosen(choice) == (asked if os.path.isfile(asked) else None)


def asked_for(choice):
    """The path that fairseq loads, or None if it refuses the flags."""
    asked = []
    flags = {f"reset_{n}": False for n in ("optimizer", "lr_scheduler", "meters", "dataloader")}
    trainer = mock.Mock(checkpoint_suffix=choice.checkpoint_suffix)
    trainer.load_checkpoint = lambda path, *_, **__: asked.append(path)
    trainer.get_train_iterator.return_value.epoch = 1
    cfg = SimpleNamespace(**vars(choice), **flags, optimizer_overrides="{}")
    with contextlib.suppress(ValueError):  # of --restore-file beside --finetune-from-model
        checkpoint_utils.load_checkpoint(cfg, trainer)
        return asked[0]


# Measured on the first training batch.


@pytest.mark.parametrize("flags", [TRANSFORMER, *modern(TIED_TRANSFORMER, LIGHTCONV)])
def test_a_decoder_without_bias_is_measured(flags, corpus, caplog):
    criterion, model, sample = make(corpus, "bnce", *flags, "--init-output-bias", "none")
    torch.manual_seed(1)  # lightconv drops weights
    want = mean_log_z(criterion, model, sample)
    drawn = []
    with caplog.at_level(logging.INFO, "fairseq_bnce.criterions.base"):
        for _ in range(2):  # measured on the first
            torch.manual_seed(1)
            criterion(model, sample)
            drawn.append(torch.get_rng_state())
            assert criterion.log_z == pytest.approx(want, abs=0.006)
            assert criterion.log_z == round(criterion.log_z, 2)
            assert criterion.task.state.state_dict == {"log_z": criterion.log_z}
    assert torch.equal(*drawn)  # measuring draws nothing
    lines = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in lines if line.startswith("log Z:")]
    assert f"{criterion.log_z:g} nats" in line and "measured" in line
    assert len([line for line in lines if line.startswith("loss:")]) == 1


@pytest.mark.parametrize("kind, want", [("unigram", 0), ("uniform", 0), ("none", math.log(64))])
def test_a_bias_that_is_set_carries_0(kind, want, corpus):
    criterion, model, sample = make(corpus, "bnce", *LSTM, "--init-output-bias", kind)
    assert criterion.start == (None if kind == "none" else 0)
    assert mean_log_z(criterion, model, sample) == pytest.approx(want, abs=0.3)
    criterion(model, sample)
    assert criterion.log_z == pytest.approx(want, abs=0.3)


def test_nothing_is_decided_on_an_empty_or_a_validation_batch(corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    assert criterion(model, with_targets(sample, 0))[0].item() == 0
    with torch.no_grad():
        loss = criterion(model.eval(), sample)[0].item()
    criterion.save_log_z()
    assert criterion.start is None and criterion.state.log_z is None
    criterion(model.train(), sample)
    assert criterion.log_z > 3
    with torch.no_grad():  # the likelihood does not depend on log Z
        assert criterion(model.eval(), sample)[0].item() == pytest.approx(loss, rel=1e-6)


def test_a_model_that_is_not_finite_is_named(corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    with torch.no_grad():
        model.decoder.output_projection.weight[3] = math.nan
    with pytest.raises(ValueError, match="--log-z"):
        criterion(model, sample)


def log_z_of_rank(rank, corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    measured = []
    for values in (torch.arange(3.0) + 10 * rank, torch.ones(rank), torch.ones(0)):
        criterion.start_at(None, "")
        criterion.measure_log_z(values)
        measured.append(criterion.start)
    criterion(model, with_targets(sample, 0) if rank else sample)
    return criterion.log_z, measured


def test_ranks_agree(corpus):
    """One of them with an empty batch; the mean is over all contexts."""
    (one, measured), (other, others) = on_two_ranks(log_z_of_rank, corpus)
    assert one == other > 3
    assert measured == others == [6.0, 1.0, None]


@pytest.mark.parametrize("lowest, want", [(-5.0, 0), (-14.0, 4.1)])
def test_squashed_scores_can_carry_it(lowest, want, corpus):
    """They are within 10: with rare words of log q = -14, log Z starts where all words fit."""
    cfg, task, model = build(corpus, *LSTM, "--criterion", "self_norm_softmax", "--score-squashing")
    log_q = torch.full((64,), lowest)
    log_q[:2] = math.log(0.5)
    criterion = task.build_criterion(cfg.criterion)
    criterion.start_at(None, "")
    unigram = SimpleNamespace(log_q=log_q, to=lambda device: unigram)
    criterion.noise.__dict__["unigram"] = unigram
    criterion.prepare(model, untrained=True)
    bias = losses.squashed(model.decoder.fc_out.bias.detach())
    assert criterion.log_z == pytest.approx(want, abs=0.01)
    torch.testing.assert_close(bias, log_q + criterion.log_z, rtol=1e-3, atol=1e-3)


# Losses that normalise scores, and losses that do not.

NORMALISING = [
    ("bnce --objective ranking", True),
    ("shared_nce", True),
    ("nce_regularized --self-norm-alpha 0", True),
    ("self_norm_softmax --score-squashing", True),
    ("sampled_softmax", False),
    ("bnce --objective ranking --self-norm-alpha 0", False),
    ("self_norm_softmax --self-norm-alpha 0", False),
]


@pytest.mark.parametrize("criterion, normalises", [("bnce", True), *modern(*NORMALISING)])
def test_log_z_is_for_models_that_normalise_themselves(criterion, normalises, corpus):
    name, *flags = criterion.split()
    criterion, model, sample = make(corpus, f"{name} here", *LSTM, *flags, "--log-z", "2")
    criterion(model, sample)
    state = criterion.task.state_dict()
    assert criterion.normalises_itself == normalises
    assert state.get("log_z") == (2.0 if normalises else None)
    assert criterion.log_z == state.get("log_z", 0.0)  # what mu_z is measured from


def test_the_first_validation_subset_gives_the_shift(corpus):
    _, task, model = build(corpus, *LSTM, *AUTO)
    for epoch, mu_z in enumerate((0.5, 1.5), 1):
        task.begin_valid_epoch(epoch, model)
        for of_subset in (mu_z, 7.0):
            values = {"mu_z": of_subset, "_z_square": of_subset**2 + 0.25}
            meters = {name: SimpleNamespace(avg=value) for name, value in values.items()}
            task.post_validate(model, {}, meters)
        state = task.state_dict()
        assert (state["mu_z"], state["sigma_z"]) == (mu_z, 0.5)


# Learned.


@pytest.mark.parametrize("name", ["bnce", *modern("nce_regularized")])
def test_a_learned_log_z_is_the_whole_losss_own(name, corpus):
    """The loss is that of the sum as a constant; its gradient is the slope there."""
    flags = [*TRANSFORMER, *(["--self-norm-alpha", "3"] if name == "nce_regularized" else [])]
    criterion, model, sample = make(corpus, name, *flags, "--learn-log-z", "--log-z", "2")
    fixed = make(corpus, name, *flags)[0]

    def loss_at(constant):
        set_log_z(fixed, constant)
        torch.manual_seed(3)
        return fixed(model, sample)[0].item()

    with torch.no_grad():
        criterion.learned_log_z.fill_(0.7)
    criterion.save_log_z()
    assert criterion.state.log_z == pytest.approx(2.7)
    torch.manual_seed(3)
    loss = criterion(model, sample)[0]
    loss.backward()
    assert loss.item() == pytest.approx(loss_at(2.7), rel=1e-5)
    slope = (loss_at(2.71) - loss_at(2.69)) / 0.02
    assert criterion.learned_log_z.grad.item() == pytest.approx(slope, rel=1e-2)


@pytest.mark.modern
def test_a_learned_log_z_leaves_halves_their_biases(corpus):
    """Halves minus a small number would be fewer values."""
    flags = [*LSTM, *AUTO, "--learn-log-z", "--log-z", "9.07"]
    cfg, task, _ = build(corpus, *flags)
    criterion = task.build_criterion(cfg.criterion).bfloat16()
    with torch.no_grad():
        criterion.learned_log_z.fill_(0.01)
    bias = (torch.arange(9) / 128).bfloat16()
    layer = SimpleNamespace(rows=lambda ids: Words(torch.zeros(9, 4).bfloat16(), bias))
    rows = criterion.rows(SimpleNamespace(layer=layer, words=SimpleNamespace(ids=None)))
    assert rows.weight.dtype == torch.bfloat16 and rows.bias.dtype == torch.float32
    torch.testing.assert_close(rows.bias, bias.float() - 0.01, rtol=0, atol=1e-4)


LEARNED = [
    ("auto", {"learned_log_z": 0.5, "_extra_state": {"initial_log_z": 7.0}}, 7.5),
    ("7", {"learned_log_z": 6.5}, 6.5),  # log Z itself, before 0.1 was out
    ("7", None, 7.0),
]


@pytest.mark.modern
@pytest.mark.parametrize("flag, state, want", LEARNED)
def test_what_was_learned_is_loaded(flag, state, want, corpus):
    flags = [*TRANSFORMER, "--learn-log-z", "--log-z", flag]
    criterion, model, sample = make(corpus, "bnce loaded", *flags)
    if state is not None:
        state = {**state, "learned_log_z": torch.tensor(state["learned_log_z"])}
    criterion.load_state_dict(state, strict=True)
    criterion(model, sample)
    assert criterion.log_z == want


@pytest.mark.parametrize("halves", ["--bf16", *modern("--memory-efficient-bf16")])
def test_optimisers_of_halves_leave_the_start_alone(halves, corpus):
    """They copied the parameters before the first batch, on which log Z is measured."""
    cfg, task, model = build(corpus, *RANDOM_START, *AUTO, "--learn-log-z", halves)
    criterion = task.build_criterion(cfg.criterion)
    trainer = Trainer(cfg, task, model, criterion)
    for samples in itertools.islice(trainer.get_train_iterator(1).next_epoch_itr(), 4):
        trainer.train_step([samples])
    assert criterion.start > 3 and criterion.learned_log_z.dtype == torch.bfloat16
    assert 0 < abs(criterion.log_z - criterion.start) < 0.1
    assert task.state_dict()["log_z"] == criterion.log_z


# Through fairseq's commands.


SHIFTED = {"constant": ["bnce"], "learned": ["bnce", "--learn-log-z", "--log-z", "1"]}
SHIFTED["not normalising"] = ["sampled_softmax"]


@pytest.mark.parametrize("kind", ["constant", "learned", *modern("not normalising")])
def test_a_resumed_run_has_the_last_validations_shift(kind, corpus, tmp_path):
    """As long as log Z is the same; a shift that is measured no more is gone."""
    flags = [*LSTM, "--criterion", *SHIFTED[kind], "--validate-interval"]
    train(corpus, tmp_path / "start", *flags, "2", "--max-epoch", "2")
    start = str(tmp_path / "start" / "checkpoint_last.pt")

    def after(*more):
        folder = tmp_path / "_".join(more)
        train(corpus, folder, *flags, "9", "--restore-file", start, "--max-epoch", "3", *more)
        return task_state(folder)

    before, same = task_state(tmp_path / "start"), after()
    assert [same[name] for name in ("mu_z", "sigma_z")] == [before["mu_z"], before["sigma_z"]]
    if kind == "constant":
        other, without = after("--log-z", "7"), after("--disable-validation")
        assert other["log_z"] == 7 and "mu_z" not in other
        assert "log_z" in without and not {"mu_z", "sigma_z"} & set(without)
        rows = {"weight": torch.zeros(2, 32), "bias": torch.zeros(2)}  # mu_z is measured from them
        edited(start, start, lambda content: content["task_state"].update(reduced_partition=rows))
        assert not {"mu_z", "reduced_partition"} & set(after("--seed", "2"))
    if kind == "not normalising":  # the shift was measured from 0: not kept beside a measured log Z
        tuned = ["--validate-interval", "9", "--finetune-from-model", start, "--max-epoch", "1"]
        train(corpus, tmp_path / "on", *LSTM, *AUTO, *tuned)
        assert "log_z" in task_state(tmp_path / "on") and "mu_z" not in task_state(tmp_path / "on")


def test_fine_tuning(corpus, tmp_path):
    """A model without log Z is measured, in spite of its bias; then its log Z stays, or starts."""
    flags = [*LSTM, "--max-update", "3"]
    train(corpus, tmp_path / "plain", *flags, "--criterion", "cross_entropy")
    plain, first = (tmp_path / name / "checkpoint_last.pt" for name in ("plain", "first"))
    flags += [*AUTO, "--finetune-from-model"]
    output = train(corpus, tmp_path / "first", *flags, plain)
    state = task_state(tmp_path / "first")
    measured = state["log_z"]
    assert "measured" in logged(output) and f"{measured:g} nats" in logged(output)
    assert 3 < measured < 6 and abs(state["mu_z"]) < 0.4
    output = train(corpus, tmp_path / "auto", *flags, first)
    assert task_state(tmp_path / "auto")["log_z"] == measured and str(first) in logged(output)
    train(corpus, tmp_path / "number", *flags, first, "--log-z", "3")
    assert task_state(tmp_path / "number")["log_z"] == 3
    train(corpus, tmp_path / "learn", *flags, plain, "--learn-log-z")
    state = saved(tmp_path / "learn")
    learned = state["criterion"]["learned_log_z"].item()
    assert state["criterion"]["_extra_state"] == {"initial_log_z": measured}
    assert learned != 0 and state["task_state"]["log_z"] == measured + learned


@pytest.mark.parametrize(
    "model, more, is_level",
    [
        (LSTM, [], True),
        (LSTM, ["--bf16"], False),
        ([*LSTM, "--share-decoder-input-output-embed"], [], False),
        *modern((TIED_TRANSFORMER, [], False)),
    ],
    ids=["rows of its own", "copied rows", "rows that are read", "tied transformer"],
)
def test_a_softmax_is_made_level_by_what_all_rows_share(model, more, is_level, corpus, tmp_path):
    """Probabilities stay, and log Z_c varies less, before anything is learned."""
    plain = [*model, "--criterion", "cross_entropy", "--optimizer", "adam", "--lr", "0.05"]
    train(corpus, tmp_path / "plain", *plain, "--max-epoch", "3")
    start = ["--finetune-from-model", tmp_path / "plain" / "checkpoint_last.pt", "--no-save"]
    flags = [*model, *AUTO, *more, *start, "--max-update", "1", "--lr", "1e-12"]

    def stats(*log_z):
        return valid_stats(train(corpus, tmp_path / "on", *flags, *log_z))

    found, kept = stats(), stats("--log-z", "5")
    assert found["ppl"] == pytest.approx(kept["ppl"], rel=0.01 if more else 1e-4)
    share = found["sigma_z"] / kept["sigma_z"]
    assert share < 0.8 if is_level else share == pytest.approx(1, rel=0.01)


def test_translation_resumes_with_its_log_z(pairs, tmp_path):
    """fairseq-validate loads no criterion's parameters: the task state has a learned log Z, too."""
    flags = [*SEQ2SEQ, *AUTO, "--save-interval-updates", "2", "--optimizer", "adam"]
    train(pairs, tmp_path / "run", *flags, "--max-update", "2")
    first = task_state(tmp_path / "run")["log_z"]
    train(pairs, tmp_path / "run", *flags, "--max-update", "4")
    assert task_state(tmp_path / "run")["log_z"] == first > 3
    flags += ["--learn-log-z", "--lr", "0.01", "--max-update", "4"]
    train(pairs, tmp_path / "learn", *flags)
    state = saved(tmp_path / "learn")
    start = state["criterion"]["_extra_state"]["initial_log_z"]
    learned = state["criterion"]["learned_log_z"].item()
    assert abs(learned) > 0.01 and state["task_state"]["log_z"] == pytest.approx(start + learned)
