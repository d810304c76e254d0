"""How often a training step makes the host wait for a GPU, and what it launches there."""

import warnings

import pytest
import torch
from criteria import make, with_targets
from dispatch import Kernels
from fairseq.trainer import Trainer
from loss_cases import TARGETED, call, make_problem, with_gradients
from synchronising import Synchronising
from tools import LSTM, TIED_TRANSFORMER, build, modern

from fairseq_bnce import losses
from fairseq_bnce.criterions.base import TokenBatch
from fairseq_bnce.output_layer.layer import OutputLayer

STEPS = {
    "bnce": [],
    "bnce row-sparse": ["--row-sparse", "--optimizer", "lazy_adam"],
    "bnce with draws": ["--noise-samples", "7", "--noise", "uniform"],
    "bnce ranking": ["--objective", "ranking", "--noise-samples", "7"],
    "bnce learned": ["--learn-log-z"],
    "shared_nce": ["--noise-samples", "9"],
    "shared_nce row-sparse": ["--row-sparse", "--optimizer", "lazy_adam", "--noise-samples", "9"],
    "sampled_bce": ["--noise-samples", "9"],
    "sampled_bce is": ["--noise-samples", "9", "--estimator", "is"],
    "sampled_softmax": ["--noise-samples", "9"],
    "nce": ["--noise-samples", "4"],
    "nce_regularized": ["--self-norm-rate", "0.4"],
    "self_norm_softmax sampled": ["--self-norm-rate", "0.4"],
}
EACH_STEP = ["bnce", *modern(*list(STEPS)[1:])]


@pytest.mark.parametrize("name", EACH_STEP)
def test_a_training_step_waits_twice(name, corpus, monkeypatch):
    criterion, model, sample = make(corpus, name, *LSTM, *STEPS[name])
    criterion.prepare(model, untrained=True)
    features = OutputLayer(model).features(model, sample["net_input"]).detach().requires_grad_()
    monkeypatch.setattr(OutputLayer, "features", lambda *_: features)
    for padding in (criterion.padding_idx, -1):  # a batch with padding, and one without
        monkeypatch.setattr(criterion, "padding_idx", padding)
        criterion(model, sample)  # what is made once is made
        features.grad = None
        with Synchronising() as waiting:
            criterion(model, sample)[0].backward()
        assert features.grad.abs().sum() > 0
        assert len(waiting.found) <= 2, waiting.found


@pytest.mark.parametrize("rows, most", [(["--row-sparse", "--optimizer", "lazy_adam"], 4), ([], 2)])
def test_an_update_waits_seldom_for_a_gpu(rows, most, corpus):
    """Beside fairseq's own waits, which an update by cross_entropy has too."""
    usual = an_update(Synchronising(), corpus, "cross_entropy").found
    assert usual
    ours = an_update(Synchronising(), corpus, "bnce", *rows).found
    assert len(ours) - len(usual) <= most, ours


# What an update launches now; lower the numbers with the code's.
@pytest.mark.modern
@pytest.mark.parametrize(
    "criterion, flags, most",
    [
        ("cross_entropy", [], 253),
        ("bnce", [], 301),
        ("bnce", ["--row-sparse", "--optimizer", "lazy_adam"], 315),
        ("shared_nce", ["--noise-samples", "9"], 329),
    ],
)
def test_an_update_launches_no_more_than_it_did(criterion, flags, most, corpus):
    counts = an_update(Kernels(), corpus, criterion, *flags).counts
    assert 0 < sum(counts.values()) <= most, counts.most_common()


def an_update(watching, corpus, criterion, *flags):
    """Make the second update within a context, and return the context."""
    flags = [*TIED_TRANSFORMER, "--criterion", criterion, *flags, "--num-workers", "0"]
    cfg, task, model = build(corpus, *flags)
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    batches = list(trainer.get_train_iterator(1).next_epoch_itr(shuffle=False))
    trainer.train_step(batches[:1])
    with watching:
        trainer.train_step(batches[1:2])
    return watching


@pytest.mark.parametrize("name", TARGETED)
def test_a_loss_looks_at_all_values_at_once(name):
    """Beside looks for ignored targets and for the words that there are."""
    problem = with_gradients(make_problem(17), torch.float32)
    with Synchronising() as waiting:
        call(losses, name, problem).sum().backward()
    assert len(waiting.found) == 3 - (name == "target_scores"), waiting.found


def test_no_padding_and_padding_give_the_same_batch(corpus):
    criterion, model, sample = make(corpus, "bnce")
    for kept in (with_targets(sample, 9), sample):
        batch = TokenBatch.from_sample(model, kept, 1)
        is_word = kept["target"].ne(1)
        assert torch.equal(batch.target, kept["target"][is_word])
        assert torch.equal(batch.time_steps, is_word.nonzero()[:, 1])
        features = OutputLayer(model).features(model, kept["net_input"])
        assert torch.equal(batch.features, features[is_word])


@pytest.mark.gpu
@pytest.mark.parametrize("name", STEPS)
def test_what_a_gpu_says(name, corpus, monkeypatch):
    """torch's own count of the same."""
    criterion, model, sample = make(corpus, name, *LSTM, *STEPS[name])
    criterion.prepare(model, untrained=True)
    features = OutputLayer(model).features(model, sample["net_input"]).detach().cuda()
    features.requires_grad_()
    monkeypatch.setattr(OutputLayer, "features", lambda *_: features)
    model, criterion = model.cuda(), criterion.cuda()
    sample = {**sample, "target": sample["target"].cuda()}
    criterion(model, sample)[0].backward()
    torch.cuda.synchronize()
    assert len(waits_in(lambda: features.sum().item())) == 1
    waits = waits_in(lambda: criterion(model, sample)[0].backward())
    assert len(waits) <= 2, waits


def waits_in(work):
    """What torch tells of, each time."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            work()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [str(one.message) for one in told if "synchroniz" in str(one.message)]
