"""Each part on the GPU, if there is one, and in every precision; else on what stands in for it.

Compared with float64 on the CPU, or with float32 there where fairseq knows no other.
"""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from criteria import FLAGS, make
from device import DEVICE, HAS_GPU, there
from device import FLAGS as ON_DEVICE
from fairseq import optim, utils
from loss_cases import ROWS, assert_near, call, gradients, make_problem, with_gradients
from scoring_models import EACH
from tools import (
    LANGUAGE_MODELING,
    LSTM,
    PLUGIN,
    TIED_TRANSFORMER,
    TRAINING,
    TRANSFORMER,
    build,
    evaluate,
    first_batch,
    perplexity,
    slow,
)

from fairseq_bnce import Scorer, checkpoints, losses
from fairseq_bnce.criterions.noise_source import seeded_generator
from fairseq_bnce.noise import NoiseDistribution
from fairseq_bnce.optim.registered import take_row_sparse
from fairseq_bnce.scoring.diagnosis import measuring
from fairseq_bnce.scoring.reduction import Contexts

pytestmark = [pytest.mark.modern, pytest.mark.usefixtures("empty_folder")]

# Of a whole model: cuDNN's LSTM multiplies in TF32, features and gradients are rounded.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
# On the stand-in, which finds tensors on the wrong device, one type stands for all.
HALVES = [torch.float16, torch.bfloat16]
IN_EACH_TYPE = pytest.mark.parametrize(
    "dtype", [torch.float32, *(HALVES if HAS_GPU else slow(*HALVES))], ids=str
)
RNN = ["--arch", "rnn_lm", "--decoder-embed-dim", "16", "--decoder-layers", "2", "--dropout", "0"]
MODELS = {"rnn_lm": RNN, "transformer_lm": TRANSFORMER, "lstm_lm": LSTM}
if HAS_GPU:  # moved to the stand-in, tied weights are two
    MODELS["tied"] = TIED_TRANSFORMER
PRECISIONS = ["fp16", "bf16", "memory-efficient-fp16", "memory-efficient-bf16", "amp"]
WITH_COPIES = ("fp16", "bf16")  # of every parameter, whole: not for row-sparse gradients
CRITERIA = list(FLAGS) if HAS_GPU else ["bnce", "nce", "nce_regularized"]
CRITERIA += slow(*(name for name in FLAGS if name not in CRITERIA))
ADAM = ["--lr", "0.02", "--optimizer"]
ROW_SPARSE = [*ADAM, "lazy_adam", "--row-sparse"]


@pytest.fixture
def same_draws(monkeypatch):
    """A GPU's generator and the CPU's draw other words from one seed."""
    sample = NoiseDistribution.sample

    def drawn(self, n, generator=None):
        device, rng = self.log_q.device, torch.Generator().manual_seed(5)
        ids = sample(self.to("cpu"), n, rng).to(device)
        self.to(device)
        return ids

    monkeypatch.setattr(NoiseDistribution, "sample", drawn)
    permute = torch.randperm
    permuted = lambda *size, device=None, **rest: permute(*size, **rest).to(device)  # noqa: E731
    monkeypatch.setattr(torch, "randperm", permuted)


def test_draws():
    with there():
        noise = NoiseDistribution([5.0, 0.0, 3.0, 2.0]).to(DEVICE)
        ids = noise.sample((100, 50), seeded_generator(torch.device(DEVICE)))
        assert ids.device.type == DEVICE and ids.shape == (100, 50)
        share = torch.bincount(ids.cpu().flatten(), minlength=4) / ids.numel()
    assert share.tolist() == pytest.approx([0.5, 0.0, 0.3, 0.2], abs=0.03)


@IN_EACH_TYPE
@pytest.mark.parametrize("name", ROWS)
def test_losses(name, dtype):
    """The very same numbers, in float64 on the CPU: the reference rounds nothing but its inputs."""
    rounded = with_gradients(make_problem(33), dtype)
    exact = with_gradients(rounded, torch.float64)
    want = call(losses, name, exact).sum()
    wanted = gradients(want, exact)
    with there():
        moved = {key: _leaf(value) for key, value in rounded.items()}
        got = call(losses, name, moved).sum()
        assert got.device.type == DEVICE and got.dtype == torch.float32
        assert_near(got.cpu(), want, 1e-5)
        for key, gradient in gradients(got, moved).items():
            assert_near(gradient.cpu(), wanted[key], 1e-4 if dtype == torch.float32 else 1e-2)


def _leaf(tensor):
    moved = None if tensor is None else tensor.detach().to(DEVICE)
    return moved if moved is None else moved.requires_grad_(tensor.requires_grad)


@IN_EACH_TYPE
@pytest.mark.parametrize("model", ["rnn_lm", *slow(*list(MODELS)[1:])])
@pytest.mark.parametrize("name", CRITERIA)
def test_criteria(name, model, dtype, corpus, same_draws):
    """From the same rounded parameters."""
    want, wanted = loss_and_gradients(corpus, name, MODELS[model], dtype, "cpu", torch.float64)
    with there():
        got, found = loss_and_gradients(corpus, name, MODELS[model], dtype, DEVICE, dtype)
    assert got == pytest.approx(want, rel=TOLERANCE[dtype])
    assert found.keys() == wanted.keys()
    whole = torch.stack([gradient.norm() for gradient in wanted.values()]).norm()
    for parameter, gradient in found.items():
        off = (gradient.double() - wanted[parameter]).norm()
        assert off <= TOLERANCE[dtype] * max(wanted[parameter].norm(), whole / 2), parameter


def loss_and_gradients(corpus, name, model, rounded, device, dtype):
    """The gradients by the parameters' names, on the CPU."""
    criterion, model, sample = make(corpus, name, *model)
    criterion.prepare(model, untrained=True)
    for module in (model, criterion):
        module.to(rounded).to(device, dtype)
    loss, _, _ = criterion(model, moved_to(device, sample))
    loss.backward()
    parameters = [*model.named_parameters(), *criterion.named_parameters()]
    return loss.item(), {key: p.grad.cpu() for key, p in parameters if p.grad is not None}


def moved_to(device, sample):
    return utils.apply_to_sample(lambda tensor: tensor.to(device), sample)


@pytest.mark.parametrize("name", ["bnce", *slow("nce_regularized", "self_norm_softmax")])
def test_validation(name, corpus):
    """Exact, of all contexts and of a share of them."""
    for share in ("1", "0.3"):
        want = validated(corpus, [name, "--valid-partition-rate", share], "cpu")
        with there():
            got = validated(corpus, [name, "--valid-partition-rate", share], DEVICE)
        assert got == pytest.approx(want, rel=2e-3)


def placed(corpus, device, *flags):
    """(configuration, criterion, model, batch) as in a training there."""
    cfg, task, model = build(corpus, *flags)
    criterion = task.build_criterion(cfg.criterion)
    criterion.prepare(model, untrained=True)
    for module in (model, criterion):
        module.to(device)
    return cfg, criterion, model, moved_to(device, first_batch(task))


def validated(corpus, criterion, device):
    """The loss, and the numbers that are logged."""
    _, criterion, model, sample = placed(corpus, device, *RNN, "--criterion", *criterion)
    with torch.no_grad():
        loss, _, logged = criterion(model.eval(), sample)
    return {"sum": loss.item(), **{key: float(value) for key, value in logged.items()}}


@pytest.mark.parametrize("optimizer", ["lazy_adam", *slow("sparse_sgd", "sparse_adagrad")])
@pytest.mark.parametrize("name", ["bnce", "nce", *slow("shared_nce", "sampled_bce")])
def test_row_sparse_updates(name, optimizer, corpus, same_draws):
    flags = [*LSTM, "--criterion", name, *FLAGS[name], "--row-sparse", "--optimizer", optimizer]
    want = after_row_sparse_updates(corpus, flags, "cpu")
    with there():
        got = after_row_sparse_updates(corpus, flags, DEVICE)
    for key, parameter in got.items():
        assert_near(parameter, want[key], 2e-3)


def after_row_sparse_updates(corpus, flags, device):
    """The parameters after three, each of which can be seen."""
    lr = "5" if flags[-1] == "sparse_sgd" else "0.05"
    cfg, criterion, model, sample = placed(corpus, device, *flags, "--lr", lr)
    optimizer = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    take_row_sparse(optimizer)
    for _ in range(3):
        loss, size, _ = criterion(model.train(), sample)
        optimizer.backward(loss)
        optimizer.multiply_grads(1 / size)
        optimizer.clip_grad_norm(0.1)
        optimizer.step()
        optimizer.zero_grad()
    return {key: parameter.detach().cpu() for key, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", EACH)
def test_scores(name, language_model):
    """Of sentences, and word by word."""
    here, elsewhere = (checkpoints.load(str(language_model(name))) for _ in range(2))
    want = all_scores(Scorer(here))
    with there():
        got = all_scores(Scorer(elsewhere, device=DEVICE))
    np.testing.assert_allclose(got, want, rtol=1e-3)


def all_scores(scorer):
    lines = zipf_lines(20, seed=7)
    found = [scorer.score(lines), scorer.with_exact(True).score(lines)]
    if scorer.is_causal:
        state = scorer.start(2)
        for words in ([5, 6], [9, 6]):
            found.append(scorer.next_log_probs(state, [[3, 4], words]).flatten())
            state, log_probs = scorer.extend(state, words)
            found += [log_probs, scorer.normalisers(state)]
        host = scorer.next_words()(state)
        found += [host.scores(row, [3, 4, 5]) for row in range(2)]
    return np.concatenate(found)


def test_diagnosis(language_model):
    here, elsewhere = (checkpoints.load(str(language_model("lstm_lm"))) for _ in range(2))
    want = diagnosed(Scorer(here))
    with there():
        got = diagnosed(Scorer(elsewhere, device=DEVICE))
    for one, other in zip(got, want):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def diagnosed(scorer):
    """What is measured, and what rows of a partition function are fitted to."""
    contexts = Contexts(most=200)
    measured = np.concatenate(measuring(scorer, contexts).score_words(zipf_lines(30, seed=7)))
    return [measured, *(part.numpy() for parts in contexts.parts() for part in parts)]


@pytest.mark.parametrize("model", ["rnn_lm", *(slow("transformer_lm") if HAS_GPU else [])])
@pytest.mark.parametrize("precision", ["float32", *PRECISIONS] if HAS_GPU else slow("float32"))
def test_commands(precision, model, corpus, tmp_path):
    """Trained, resumed and scored there; scored on the CPU, it has the same perplexities.

    A unigram model's is 35: a precision in which nothing is learned shows.
    """
    flags = [*MODELS[model], "--criterion", "bnce", "--noise-samples", "7"]
    flags += [f"--{precision}"] if precision in PRECISIONS else []
    flags += [*ADAM, "adam"] if precision in WITH_COPIES else ROW_SPARSE
    start = command("fairseq_cli.train", tmp_path, corpus, *flags, "--max-update", "10")
    assert "Loaded checkpoint" not in start
    resumed = command("fairseq_cli.train", tmp_path, corpus, *flags, "--max-epoch", "2")
    assert re.search(r"Loaded checkpoint .* @ 10 updates", resumed)
    checkpoint = tmp_path / "checkpoint_last.pt"
    for way in ([], ["--unnormalized"]):
        want = perplexity(evaluate(corpus, checkpoint, *way))
        assert want < 30
        for half in [[], ["--fp16"]] if HAS_GPU else [[]]:
            places = [corpus, "--path", checkpoint, "--gen-subset", "valid"]
            blocks = ["--tokens-per-sample", "16", "--batch-size", "8"]
            got = perplexity(command("fairseq_cli.eval_lm", None, *places, *blocks, *way, *half))
            assert got == pytest.approx(want, rel=0.01), (way, half)


def command(module, save_dir, *arguments):
    """In a process of its own: a fork can't use a GPU that its parent has used."""
    training = [each for each in [*LANGUAGE_MODELING, *TRAINING] if each != "--cpu"]
    training = [*training, "--save-dir", save_dir] if save_dir else []
    words = [*training, *arguments, *ON_DEVICE, "--user-dir", PLUGIN]
    made = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(made, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout
