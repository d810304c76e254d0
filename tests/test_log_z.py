"""Where log Z starts: a number, a checkpoint's, a bias's, or measured on the first batch."""

import itertools
import logging
import math
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from architectures import LIGHTCONV, LSTM_SEQ2SEQ, SEQ2SEQ
from conftest import zipf_lines
from criteria import PAD, make, with_targets
from fairseq import checkpoint_utils
from fairseq.trainer import Trainer
from tools import (
    LSTM,
    TIED_TRANSFORMER,
    TRANSFORMER,
    binarise,
    build,
    first_batch,
    modern,
    parameters,
    slow,
    train,
    train_translation,
    valid_stats,
    validate,
    write_lines,
)
from two_ranks import on_two_ranks, results, trained_on_two_ranks

from fairseq_bnce import losses
from fairseq_bnce.criterions import log_z as constants
from fairseq_bnce.criterions.objectives import _rows
from fairseq_bnce.errors import CheckpointError
from fairseq_bnce.output_layer.batch import TokenBatch

AUTO = ["--criterion", "bnce"]
# Without the unigram scores of test_initial_scores.py, so that log Z is near log V.
RANDOM_START = [*TRANSFORMER, "--init-output-bias", "none"]


def saved(folder, name="checkpoint_last.pt"):
    return torch.load(folder / name, map_location="cpu", weights_only=False)


def carried(folder):
    return saved(folder)["task_state"]["log_z"]


def said(output):
    """The one line about log Z."""
    (line,) = [line for line in output.splitlines() if " | log Z: " in line]
    return line.split(" | log Z: ")[1]


def mean_log_z(model, sample):
    batch = TokenBatch.from_sample(model, sample, PAD)
    with torch.no_grad():
        return losses.log_partition(batch.features, *batch.layer.full()).mean().item()


# The rule, in this process.


def test_start():
    """A number stays one; then the checkpoint's; then the bias's; and else it is measured."""
    nothing, ours = constants.Restored("a.pt", None), constants.Restored("a.pt", 7.62)
    assert constants.start(None, None, 0.0).value == 0
    assert constants.start(None, None, None).value is None
    assert constants.start(None, nothing, 0.0).value is None
    assert constants.start(None, ours, 0.0) == (7.62, "carried by a.pt")
    for found, by_bias in itertools.product([None, nothing, ours], [None, 0.0]):
        start = constants.start(5.0, found, by_bias)
        assert start.value == 5
        assert ("in the place of the 7.62 that a.pt" in start.origin) == (found is ours)
    assert constants.start(7.62, ours, None).origin == "--log-z"


@pytest.mark.parametrize("text", ["7.6", "0", "-1e-3", 4])
def test_a_number_is_read(text):
    assert constants.parsed(text) == float(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "Auto", "", "7,6", None])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="--log-z: required a finite number or 'auto', got"):
        constants.parsed(text)


@pytest.mark.parametrize("restore", ["checkpoint_last.pt", "other.pt"])
@pytest.mark.parametrize("suffix", ["", "-x"])
@pytest.mark.parametrize("once", [None, "once.pt"])
@pytest.mark.parametrize("tuned", [None, "tuned.pt"])
@pytest.mark.parametrize("last", [False, True])
def test_the_file_is_the_one_that_fairseq_loads(
    restore, suffix, once, tuned, last, tmp_path, monkeypatch
):
    """fairseq's own load_checkpoint, up to the call of the trainer's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("once.pt", "tuned.pt", "other.pt", "other-x.pt"):
        (tmp_path / name).touch()
    if last:
        (tmp_path / "run" / f"checkpoint_last{suffix}.pt").touch()
    choice = constants.CheckpointChoice("run", restore, once, tuned, suffix, False)
    asked = []
    flags = {f"reset_{n}": False for n in ("lr_scheduler", "meters", "dataloader")}
    cfg = SimpleNamespace(**choice._asdict(), **flags, optimizer_overrides="{}")
    trainer = SimpleNamespace(
        checkpoint_suffix=suffix,
        load_checkpoint=lambda path, reset_optimizer, *_, **__: asked.extend(
            [path, reset_optimizer]
        ),
        get_train_iterator=lambda **_: SimpleNamespace(epoch=1),
        lr_step=lambda _: None,
    )
    try:
        checkpoint_utils.load_checkpoint(cfg, trainer)
    except ValueError:  # of --restore-file beside --finetune-from-model, which fairseq refuses
        assert restore != "checkpoint_last.pt" and tuned
        return
    path = asked[0] if os.path.isfile(asked[0]) else None
    assert choice.path() == path
    if path is not None:
        assert choice.keeps_optimizer() == (not asked[1])
    assert not choice._replace(reset_optimizer=True).keeps_optimizer()


def test_what_a_checkpoint_carries(tmp_path):
    choice = constants.CheckpointChoice(str(tmp_path), "checkpoint_last.pt", None, None, "", False)
    path = tmp_path / "checkpoint_last.pt"

    def found(**content):
        torch.save({"model": {}, **content}, path)
        return constants.restored(choice).log_z

    assert constants.restored(choice) is None
    assert found() is None and found(task_state={}, criterion=None) is None
    assert found(task_state={"log_z": 7.6}, criterion=None) == 7.6
    learned = {"learned_log_z": torch.tensor(0.25)}
    assert found(task_state={"log_z": 1.0}, criterion=learned) == 0.25
    learned["_extra_state"] = {"initial_log_z": 7.5}
    assert found(task_state={"log_z": 1.0}, criterion=learned) == 7.75
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="--log-z"):
            found(task_state={"log_z": bad})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(CheckpointError, match=str(path)):
        constants.restored(choice)
    torch.save({"task_state": {"log_z": 3.0}}, path, _use_new_zipfile_serialization=False)
    assert constants.restored(choice).log_z == 3


@pytest.mark.parametrize(
    "tokens, vocabulary, want",
    [
        (0, 64, 0),
        (5, 64, 5),
        (20 * 1024, 64, 1024),
        (5000, 2**20, 128),
        (5000, 2**30, 32),
        (9, 2**30, 9),
    ],
)
def test_contexts_to_measure(tokens, vocabulary, want):
    chosen = constants.contexts_to_measure(tokens, vocabulary, torch.device("cpu"))
    assert len(chosen.unique()) == len(chosen) == want
    assert all(0 <= index < tokens for index in chosen)
    assert want < 20 or len((chosen % 20).unique()) > 10  # at many places of lines of 20 words


# Measured on the first training batch.


@pytest.mark.parametrize("flags", [TRANSFORMER, *modern(TIED_TRANSFORMER, LIGHTCONV)])
def test_a_decoder_without_bias_is_measured(flags, corpus, caplog):
    criterion, model, sample = make(corpus, "bnce", *flags, "--init-output-bias", "none")
    torch.manual_seed(1)  # lightconv drops weights
    want = mean_log_z(model, sample)
    torch.manual_seed(1)
    with caplog.at_level(logging.INFO, "fairseq_bnce.criterions.base"):
        criterion(model, sample)
        assert criterion.log_z == pytest.approx(want, abs=0.006)
        assert criterion.log_z == round(criterion.log_z, 2)
        assert criterion.task.state.state_dict == {"log_z": criterion.log_z}
        criterion(model, sample)
    lines = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in lines if line.startswith("log Z:")]
    assert f"{criterion.log_z:g} nats" in line and "measured" in line and "first" in line
    (line,) = [line for line in lines if line.startswith("loss:")]
    assert "training lines the objective" in line and "exact negative log-likelihood" in line


@pytest.mark.modern
def test_measuring_draws_nothing(corpus):
    """The first update's noise is what it is with a number."""
    criterion, model, sample = make(corpus, "shared_nce", *RANDOM_START)
    after = []
    for _ in range(2):  # measured on the first
        torch.manual_seed(1)
        criterion(model, sample)
        after.append(torch.get_rng_state())
    assert "measured" in criterion.constant.origin and torch.equal(*after)


@pytest.mark.parametrize("flags", [[], ["--init-output-bias", "uniform"]])
def test_a_bias_carries_0(flags, corpus):
    cfg, task, model = build(corpus, *LSTM, *AUTO, *flags)
    criterion = task.build_criterion(cfg.criterion)
    assert criterion.constant.start == 0
    assert mean_log_z(model, first_batch(task)) == pytest.approx(0, abs=0.2)


@pytest.mark.modern
def test_a_bias_that_is_left_alone_is_measured(corpus):
    cfg, task, model = build(corpus, *LSTM, *AUTO, "--init-output-bias", "none")
    criterion = task.build_criterion(cfg.criterion)
    criterion(model.train(), first_batch(task))
    assert criterion.log_z == pytest.approx(math.log(64), abs=0.3)


def test_empty_batches_are_passed_over(corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    loss = criterion(model, with_targets(sample, 0))[0]
    assert loss.item() == 0 and criterion.constant.start is None
    assert "log_z" not in criterion.scoring_state()
    criterion(model, sample)
    assert criterion.log_z > 3


def test_validation_before_training(corpus):
    """The likelihood does not depend on log Z, and nothing is decided on validation data."""
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    with torch.no_grad():
        loss = criterion(model.eval(), sample)[0].item()
    assert criterion.constant.start is None
    criterion(model.train(), sample)
    with torch.no_grad():
        assert criterion(model.eval(), sample)[0].item() == pytest.approx(loss, rel=1e-6)


def test_halves_are_measured_in_float32(corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    model = model.bfloat16()
    batch = TokenBatch.from_sample(model, sample, PAD)
    exact = losses.log_partition(batch.features.float(), batch.layer.full().weight.float(), None)
    criterion.bfloat16()(model, sample)
    assert criterion.log_z == pytest.approx(exact.mean().item(), abs=0.0051)


def test_a_model_that_is_not_finite_is_named(corpus):
    criterion, model, sample = make(corpus, "bnce", *RANDOM_START)
    with torch.no_grad():
        model.decoder.output_projection.weight[3] = math.nan
    with pytest.raises(
        ValueError, match="--log-z: required a number, .*, got auto, which measured"
    ):
        criterion(model, sample)


@pytest.mark.modern
def test_translation_is_measured_with_a_bias_or_without(pairs):
    for flags in (SEQ2SEQ, LSTM_SEQ2SEQ):
        cfg, task, model = build(pairs, *flags, *AUTO)
        criterion, sample = task.build_criterion(cfg.criterion), first_batch(task)
        want = mean_log_z(model.train(), sample)
        criterion(model, sample)
        assert criterion.log_z == pytest.approx(want, abs=0.006)
        assert task.state_dict() == {"log_z": criterion.log_z}


def log_z_of_rank(rank, corpus):
    cfg, task, model = build(corpus, *RANDOM_START, *AUTO)
    criterion, sample = task.build_criterion(cfg.criterion), first_batch(task)
    sample = with_targets(sample, 0) if rank else sample
    sums = [constants.measured(torch.arange(3.0) + 10 * rank)]
    sums += [constants.measured(torch.ones(rank)), constants.measured(torch.ones(0))]
    criterion(model.train(), sample)
    return criterion.log_z, sums


def test_ranks_agree(corpus):
    """One of them with an empty batch; the mean is over all contexts."""
    (one, sums), (other, others) = on_two_ranks(log_z_of_rank, corpus)
    assert one == other > 3
    assert sums == others == [6.0, 1.0, None]


# Squashed scores are within 10.


def test_squashed_scores_can_carry_it(corpus, monkeypatch):
    """Rare words' log q of -14 is out of reach at log Z = 0: it starts where all words fit."""
    flags = [*LSTM, "--criterion", "self_norm_softmax", "--score-squashing"]
    for lowest in (-5.0, -14.0, -17.5):
        cfg, task, model = build(corpus, *flags)
        criterion = task.build_criterion(cfg.criterion)
        log_q = torch.full((64,), lowest)
        log_q[:2] = math.log(0.5)
        monkeypatch.setattr(
            criterion, "_initial_distribution", lambda _, q=log_q: SimpleNamespace(log_q=q)
        )
        with torch.no_grad():
            model.decoder.fc_out.weight.zero_()
        criterion.prepare(model, untrained=True)
        bias = losses.squashed(model.decoder.fc_out.bias.detach())
        assert criterion.log_z == (0 if lowest == -5 else pytest.approx(-9.9 - lowest, abs=0.01))
        torch.testing.assert_close(bias, log_q + criterion.log_z, rtol=1e-3, atol=1e-3)


# Losses that do not normalise scores.

NORMALISING = {
    "bnce": [],
    "bnce ranking": ["--objective", "ranking"],
    "nce": [],
    "shared_nce": [],
    "sampled_bce": [],
    "nce_regularized without penalty": ["--self-norm-alpha", "0"],
    "self_norm_softmax": ["--score-squashing"],
    "self_norm_softmax sampled": ["--self-norm-rate", "0.5"],
}
NOT_NORMALISING = {
    "sampled_softmax": [],
    "bnce ranking alone": ["--objective", "ranking", "--self-norm-alpha", "0"],
    "self_norm_softmax alone": ["--self-norm-alpha", "0"],
}
ALL_BUT_BNCE = [*NORMALISING.items(), *NOT_NORMALISING.items()][1:]


@pytest.mark.parametrize("name, flags", [("bnce", []), *modern(*ALL_BUT_BNCE)])
def test_log_z_is_for_models_that_normalise_themselves(name, flags, corpus):
    flags = [*LSTM, "--criterion", name.split()[0], *flags, "--log-z", "2"]
    cfg, task, model = build(corpus, *flags)
    criterion = task.build_criterion(cfg.criterion)
    criterion(model.train(), first_batch(task))
    state = task.state_dict()
    assert criterion.normalises_itself == (name in NORMALISING)
    assert state.get("log_z") == (2.0 if name in NORMALISING else None)
    assert criterion.log_z == state.get("log_z", 0.0)  # what mu_z is measured from
    if not criterion.score_squashing:  # the bias has it
        assert mean_log_z(model, first_batch(task)) == pytest.approx(2, abs=0.3)


@pytest.mark.modern
def test_a_loss_that_does_not_normalise_measures_nothing(corpus):
    criterion, model, sample = make(corpus, "sampled_softmax", *RANDOM_START)
    criterion(model, sample)
    assert criterion.constant.start == 0 and "log_z" not in criterion.task.state_dict()


def test_the_first_validation_subset_gives_the_shift(corpus):
    _, task, model = build(corpus, *LSTM, *AUTO)
    for epoch, mu_z in enumerate((0.5, 1.5), 1):
        task.begin_valid_epoch(epoch, model)
        for of_subset in (mu_z, 7.0):
            logged = {"mu_z": of_subset, "_z_square": of_subset**2 + 0.25}
            meters = {name: SimpleNamespace(avg=value) for name, value in logged.items()}
            task.post_validate(model, {}, meters)
        state = task.state_dict()
        assert (state["mu_z"], state["sigma_z"]) == (mu_z, 0.5)


# Learned.


@pytest.mark.modern
@pytest.mark.parametrize("name", ["bnce", "nce_regularized"])
def test_a_learned_log_z_has_the_whole_losss_gradient(name, corpus):
    flags = [*TRANSFORMER, "--criterion", name, "--learn-log-z"]
    flags += ["--self-norm-alpha", "3"] if name == "nce_regularized" else []
    cfg, task, model = build(corpus, *flags)
    criterion, sample = task.build_criterion(cfg.criterion), first_batch(task)

    def loss_at(learned):
        with torch.no_grad():
            criterion.learned_log_z.fill_(learned)
        torch.manual_seed(3)
        return criterion(model.train(), sample)[0]

    loss_at(0.7).backward()
    slope = (loss_at(0.71).item() - loss_at(0.69).item()) / 0.02
    assert criterion.learned_log_z.grad.item() == pytest.approx(slope, rel=1e-2)
    assert criterion.log_z == pytest.approx(criterion.constant.start + 0.69)


@pytest.mark.modern
def test_a_learned_log_z_leaves_halves_their_biases(corpus):
    """log q + 9 + k / 128 for nine k: of halves less about 9, three would be left."""
    cfg, task, _ = build(corpus, *LSTM, *AUTO, "--learn-log-z", "--log-z", "9.07")
    criterion = task.build_criterion(cfg.criterion).bfloat16()
    with torch.no_grad():
        criterion.learned_log_z.fill_(0.01)
    bias = (torch.arange(9) / 128).bfloat16()
    layer = SimpleNamespace(rows=lambda ids: (torch.zeros(9, 4).bfloat16(), bias))
    words = _rows(SimpleNamespace(layer=layer), torch.arange(9), criterion.differentiable_log_z)
    left = words.bias
    assert words.weight.dtype == torch.bfloat16 and left.dtype == torch.float32
    assert len(left.unique()) == 9
    torch.testing.assert_close(left, bias.float() - 9.08, rtol=0, atol=1e-4)


@pytest.mark.modern
def test_what_was_learned_is_loaded(corpus):
    """A state of ours, one with log Z itself (before 0.1 was out), and none at all."""
    for flag, state, want in [
        ("auto", {"learned_log_z": 0.5, "_extra_state": {"initial_log_z": 7.0}}, 7.5),
        ("auto", {"learned_log_z": 6.5}, 6.5),
        ("7", {"learned_log_z": 6.5}, 6.5),
        ("7", None, 7.0),
    ]:
        cfg, task, model = build(corpus, *TRANSFORMER, *AUTO, "--learn-log-z", "--log-z", flag)
        criterion = task.build_criterion(cfg.criterion)
        if state is not None:
            state["learned_log_z"] = torch.tensor(state["learned_log_z"])
        criterion.load_state_dict(state, strict=True)
        criterion(model.train(), first_batch(task))
        assert criterion.log_z == want


@pytest.mark.parametrize("halves", ["--bf16", *modern("--memory-efficient-bf16")])
def test_optimisers_of_halves_leave_the_start_alone(halves, corpus):
    """They copied the parameters before the first batch, on which log Z is measured."""
    cfg, task, model = build(corpus, *RANDOM_START, *AUTO, "--learn-log-z", halves)
    criterion = task.build_criterion(cfg.criterion)
    trainer = Trainer(cfg, task, model, criterion)
    for samples in itertools.islice(trainer.get_train_iterator(1).next_epoch_itr(), 4):
        trainer.train_step([samples])
    assert criterion.constant.start > 3 and criterion.learned_log_z.dtype == torch.bfloat16
    assert 0 < abs(criterion.log_z - criterion.constant.start) < 0.1
    assert task.state_dict()["log_z"] == criterion.log_z


# Through fairseq's commands.


def test_a_resumed_run_knows_of_the_last_validation(corpus, tmp_path):
    """What it saves before the next one is scored less the same shift, of the same constant."""
    flags = [*LSTM, *AUTO, "--validate-interval", "2"]
    train(corpus, tmp_path, *flags, "--max-epoch", "2")
    second = shutil.copy(tmp_path / "checkpoint_last.pt", tmp_path / "second.pt")
    before = saved(tmp_path)["task_state"]
    train(corpus, tmp_path, *flags, "--max-epoch", "3")
    after = saved(tmp_path)["task_state"]
    assert [after[name] for name in ("mu_z", "sigma_z")] == [before["mu_z"], before["sigma_z"]]
    flags += ["--restore-file", str(second), "--log-z", "7", "--max-epoch", "3"]
    train(corpus, tmp_path / "other", *flags)
    found = saved(tmp_path / "other")["task_state"]
    assert found["log_z"] == 7 and "mu_z" not in found


@pytest.mark.parametrize(
    "flags",
    [
        ["--criterion", "bnce", "--learn-log-z", "--log-z", "1"],
        *modern(["--criterion", "sampled_softmax"]),
    ],
    ids=["learned", "not normalising"],
)
def test_a_resumed_run_without_a_constant_knows_of_the_last_validation(flags, corpus, tmp_path):
    flags = [*LSTM, *flags, "--validate-interval", "2"]
    train(corpus, tmp_path, *flags, "--max-epoch", "2")
    before = saved(tmp_path)["task_state"]
    train(corpus, tmp_path, *flags, "--max-epoch", "3")
    after = saved(tmp_path)["task_state"]
    assert [after[name] for name in ("mu_z", "sigma_z")] == [before["mu_z"], before["sigma_z"]]


def test_the_shift_of_a_model_without_log_z_is_not_taken_off_beside_one(corpus, tmp_path):
    """It was measured from 0, and what log Z is measured to lies in its place."""
    train(corpus, tmp_path / "raw", *LSTM, "--criterion", "sampled_softmax", "--max-epoch", "1")
    before = tmp_path / "raw" / "checkpoint_last.pt"
    state = saved(before.parent)["task_state"]
    assert "mu_z" in state and "log_z" not in state
    flags = [*LSTM, *AUTO, "--finetune-from-model", before, "--validate-interval", "9"]
    train(corpus, tmp_path / "on", *flags, "--max-epoch", "1")
    state = saved(tmp_path / "on")["task_state"]
    assert "log_z" in state and "mu_z" not in state


def test_the_shift_beside_rows_that_are_dropped_is_gone_with_them(corpus, tmp_path):
    """It was measured from what they say of log Z, and not from the constant."""
    flags = [*LSTM, *AUTO, "--validate-interval", "9"]  # saved before anything is measured
    train(corpus, tmp_path, *flags, "--max-epoch", "1")
    content = saved(tmp_path)
    rows = {"weight": torch.zeros(2, 32), "bias": torch.zeros(2)}
    content["task_state"].update(mu_z=0.5, sigma_z=0.1, reduced_partition=rows)
    torch.save(content, tmp_path / "rows.pt")
    train(
        corpus, tmp_path / "on", *flags, "--restore-file", tmp_path / "rows.pt", "--max-epoch", "2"
    )
    assert not {"mu_z", "reduced_partition"} & set(saved(tmp_path / "on")["task_state"])


@pytest.mark.parametrize("off", [["--valid-partition-rate", "0"], ["--disable-validation"]])
def test_a_shift_that_is_measured_no_more_is_gone(off, corpus, tmp_path):
    """Another model's would be taken off every score, and nobody told."""
    flags = [*LSTM, *AUTO]
    train(corpus, tmp_path, *flags, "--max-epoch", "1")
    assert "mu_z" in saved(tmp_path)["task_state"]
    train(corpus, tmp_path, *flags, "--max-epoch", "2", *off)
    found = saved(tmp_path)["task_state"]
    assert "log_z" in found and not {"mu_z", "sigma_z"} & set(found)


@pytest.mark.parametrize("learned", [[], *slow(["--learn-log-z"])], ids=["constant", "learned"])
def test_a_resumed_run_repeats_the_uninterrupted_one(learned, corpus, tmp_path):
    """Tied, an LSTM has no output bias; a transformer's biases that do nothing differ by 1e-27."""
    flags = [*LSTM, "--share-decoder-input-output-embed", *AUTO, *learned, "--dropout", "0.2"]
    flags += ["--save-interval-updates", "5", "--update-freq", "2"]
    whole = train(corpus, tmp_path / "whole", *flags, "--max-update", "12")
    train(corpus, tmp_path / "parts", *flags, "--max-update", "5")
    resumed = train(corpus, tmp_path / "parts", *flags, "--max-update", "12")
    assert "measured" in said(whole)
    words = "as far as it was learned, from" if learned else "carried by"
    assert words in said(resumed)
    assert carried(tmp_path / "parts") == carried(tmp_path / "whole")
    want = parameters(tmp_path / "whole" / "checkpoint_last.pt")
    got = parameters(tmp_path / "parts" / "checkpoint_last.pt")
    assert all(torch.equal(got[name], value) for name, value in want.items())
    # Validation knows it, where nothing is trained.
    checked = validate(corpus, tmp_path / "whole" / "checkpoint_last.pt")
    mu_z = float(re.findall(r" mu_z (-?[\d.]+)", checked)[-1])
    assert mu_z == pytest.approx(saved(tmp_path / "whole")["task_state"]["mu_z"], abs=2e-4)


RESETS = ["--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"]


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    """A cross_entropy model with an output bias, whose scores are far from normalised."""
    folder = tmp_path_factory.mktemp("plain")
    train(corpus, folder, *LSTM, "--criterion", "cross_entropy", "--max-update", "20")
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def tuned(corpus, plain, tmp_path_factory):
    """The same, fine-tuned: (folder, output)."""
    folder = tmp_path_factory.mktemp("tuned")
    flags = ["--finetune-from-model", plain, "--max-update", "3"]
    return folder, train(corpus, folder, *LSTM, *AUTO, *flags)


def test_a_model_without_log_z_is_measured(plain, tuned):
    """In spite of its output bias."""
    folder, output = tuned
    assert f"{plain} carries none: measured" in said(output)
    assert 3 < carried(folder) < 6 and f"{carried(folder):g} nats" in said(output)
    assert abs(valid_stats(output)["mu_z"]) < 0.4


def test_reset_flags_load_a_model_too(corpus, plain, tuned, tmp_path):
    flags = ["--restore-file", plain, *RESETS, "--max-update", "3"]
    output = train(corpus, tmp_path, *LSTM, *AUTO, *flags)
    assert carried(tmp_path) == carried(tuned[0]) and "carries none: measured" in said(output)


@pytest.mark.modern
def test_a_model_of_ours_keeps_its_log_z(corpus, tuned, tmp_path):
    first = tuned[0] / "checkpoint_last.pt"
    flags = [*LSTM, *AUTO, "--finetune-from-model", first]
    output = train(corpus, tmp_path / "auto", *flags, "--max-update", "2")
    assert carried(tmp_path / "auto") == carried(tuned[0])
    assert f"carried by {first}" in said(output)
    output = train(corpus, tmp_path / "number", *flags, "--log-z", "3", "--max-update", "2")
    assert carried(tmp_path / "number") == 3
    assert f"in the place of the {carried(tuned[0]):g} that {first}" in said(output)
    learn = train(corpus, tmp_path / "learn", *flags, "--learn-log-z", "--max-update", "2")
    assert saved(tmp_path / "learn")["criterion"]["_extra_state"] == {
        "initial_log_z": carried(tuned[0])
    }
    assert "carried by" in said(learn)


@pytest.mark.modern
@pytest.mark.parametrize("before, now", [([], ["--learn-log-z"]), (["--learn-log-z"], [])])
def test_learning_it_is_not_switched_under_an_optimiser(corpus, tmp_path, before, now):
    """torch's own error about parameter groups, before, after all was loaded."""
    flags = [*LSTM, *AUTO, "--optimizer", "adam"]
    train(corpus, tmp_path, *flags, *before, "--max-update", "1")
    content = (tmp_path / "checkpoint_last.pt").read_bytes()
    output = train(corpus, tmp_path, *flags, *now, "--max-update", "2", check=False)
    required = (before or ["training without it"])[0]
    assert f"--learn-log-z: required {required}, as {tmp_path}" in output
    assert "or --reset-optimizer" in output
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == content
    train(corpus, tmp_path, *flags, *now, "--max-update", "2", "--reset-optimizer")


@pytest.mark.modern
def test_a_stock_model_learns_log_z(corpus, plain, tuned, tmp_path):
    """A TypeError before: the checkpoint has no state of a criterion."""
    flags = ["--finetune-from-model", plain, "--learn-log-z", "--max-update", "3"]
    train(corpus, tmp_path, *LSTM, *AUTO, *flags)
    state = saved(tmp_path)
    begun = state["criterion"]["_extra_state"]["initial_log_z"]
    assert begun == carried(tuned[0])
    learned = state["criterion"]["learned_log_z"].item()
    assert learned != 0 and state["task_state"]["log_z"] == begun + learned


def test_translation_resumes_with_its_log_z(pairs, tmp_path):
    flags = [*SEQ2SEQ, *AUTO, "--save-interval-updates", "2", "--optimizer", "adam"]
    train_translation(pairs, tmp_path, *flags, "--max-update", "2")
    first = carried(tmp_path)
    output = train_translation(pairs, tmp_path, *flags, "--max-update", "4")
    assert carried(tmp_path) == first > 3 and "carried by" in said(output)


def test_translation_saves_what_log_z_was_learned_to(pairs, tmp_path):
    """For fairseq-validate, which loads no criterion's parameters."""
    flags = [*SEQ2SEQ, *AUTO, "--learn-log-z", "--optimizer", "adam", "--lr", "0.01"]
    train_translation(pairs, tmp_path, *flags, "--max-update", "4")
    state = saved(tmp_path)
    start = state["criterion"]["_extra_state"]["initial_log_z"]
    learned = state["criterion"]["learned_log_z"].item()
    assert abs(learned) > 0.01 and carried(tmp_path) == pytest.approx(start + learned)


@pytest.mark.parametrize(
    "learned, backend",
    [
        ([], "pytorch_ddp"),
        *slow((["--learn-log-z"], "legacy_ddp"), (["--learn-log-z"], "pytorch_ddp")),
    ],
)
def test_two_ranks(learned, backend, corpus, tmp_path):
    """The last of the first epoch's updates has a dummy batch on one rank; then resumed."""
    flags = [*RANDOM_START, *AUTO, *learned, "--batch-size", "11", "--ddp-backend", backend]
    trained_on_two_ranks(corpus, tmp_path, *flags)
    first = carried(tmp_path / "run")
    trained_on_two_ranks(corpus, tmp_path, *flags, "--max-epoch", "2")
    assert learned or carried(tmp_path / "run") == first
    assert first == pytest.approx(4.1, abs=0.4)
    one, other = (result["parameters"] for result in results(tmp_path))
    assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.fixture(scope="module")
def many_words(tmp_path_factory):
    """A corpus of about 1,900 types."""
    folder = tmp_path_factory.mktemp("many")
    for split, count in (("train", 3000), ("valid", 200)):
        write_lines(folder / f"{split}.txt", zipf_lines(count, seed=count, types=2000))
    return binarise(folder, folder / "bin")


@pytest.mark.slow  # four trainings that are long for a test; what is measured is tested above
def test_auto_does_as_well_as_the_right_number(many_words, tmp_path):
    """From random scores, which are near log V, a training with log Z = 0 is spent on the way."""
    flags = [*TRANSFORMER, "--max-update", "150", "--max-epoch", "9", "--batch-size", "16"]
    flags += ["--lr", "0.005", "--no-save"]

    def ppl(*others):
        return valid_stats(train(many_words, tmp_path, *flags, *others))["ppl"]

    softmax = ppl("--criterion", "cross_entropy")
    random = [*AUTO, "--init-output-bias", "none"]
    auto, right, zero = ppl(*random), ppl(*random, "--log-z", "7.5"), ppl(*random, "--log-z", "0")
    unigram = ppl(*AUTO)
    print(f"auto {auto}, 7.5 {right}, 0 {zero}, unigram scores {unigram}, cross_entropy {softmax}")
    assert auto < 1.03 * right and auto < 0.6 * zero and auto < 1.25 * softmax
    assert unigram < 0.9 * auto and unigram < softmax
