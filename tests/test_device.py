"""Each part on the GPU, if there is one, and in every precision: against float64 on the CPU."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import zipf_lines
from device import DEVICE
from device import FLAGS as ON_DEVICE
from fairseq import utils
from fairseq.trainer import Trainer
from loss_cases import ROWS, assert_near, call, gradients, make_problem, with_gradients
from scoring_models import EACH
from test_criterions import FLAGS, make
from tools import (
    LSTM,
    PLUGIN,
    TIED_TRANSFORMER,
    TRAINING,
    TRANSFORMER,
    build,
    evaluate,
    perplexity,
    slow,
)

from fairseq_bnce import Scorer, losses
from fairseq_bnce.noise import NoiseDistribution

pytestmark = pytest.mark.modern

# Of a whole model: cuDNN's LSTM multiplies in TF32, features and gradients are rounded.
TOLERANCE = {torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
IN_EACH_TYPE = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "half", "bf16"])
RNN = ["--arch", "rnn_lm", "--decoder-embed-dim", "16", "--decoder-layers", "2", "--dropout", "0"]
MODELS = {"rnn_lm": RNN, "transformer_lm": TRANSFORMER}
MODELS.update({"tied": TIED_TRANSFORMER, "lstm_lm": LSTM})
PRECISIONS = {
    "float32": [],
    "fp16": ["--fp16"],
    "bf16": ["--bf16"],
    "memory-efficient fp16": ["--memory-efficient-fp16"],
    "memory-efficient bf16": ["--memory-efficient-bf16"],
    "amp": ["--amp"],
}
WITH_COPIES = ("fp16", "bf16")  # of every parameter, whole: not for row-sparse gradients
# float32 would be compared with itself there, and the others need a GPU.
ON_CPU = ["bf16", "memory-efficient fp16", "memory-efficient bf16"]
ADAM = ["--lr", "0.02", "--optimizer"]
ROW_SPARSE = [*ADAM, "lazy_adam", "--row-sparse"]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch, tmp_path):
    """fairseq's trainer saves into the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    """A GPU's generator and the CPU's draw other words from one seed."""
    sample = NoiseDistribution.sample

    def drawn(self, n, generator=None):
        device, rng = self.log_q.device, torch.Generator().manual_seed(5)
        ids = sample(self.to("cpu"), n, rng).to(device)
        self.to(device)
        return ids

    monkeypatch.setattr(NoiseDistribution, "sample", drawn)


@IN_EACH_TYPE
@pytest.mark.parametrize("name", ROWS)
def test_losses(name, dtype):
    """The very same numbers, in float64 on the CPU: the reference rounds nothing but its inputs."""
    problem = make_problem(33)
    rounded = with_gradients(problem, dtype)
    exact = with_gradients({**problem, **_detached(rounded)}, torch.float64)
    here = {key: _leaf_on_device(value) for key, value in rounded.items()}
    want, got = (call(losses, name, each).sum() for each in (exact, here))
    assert got.device.type == DEVICE and got.dtype == torch.float32
    assert_near(got.cpu(), want, 1e-5)
    wanted = gradients(want, exact)
    for key, gradient in gradients(got, here).items():
        assert_near(gradient.cpu(), wanted[key], 1e-4 if dtype == torch.float32 else 1e-2)


def _detached(problem):
    return {key: None if x is None else x.detach() for key, x in problem.items()}


def _leaf_on_device(tensor):
    moved = None if tensor is None else tensor.detach().to(DEVICE)
    return moved if moved is None else moved.requires_grad_(tensor.requires_grad)


@IN_EACH_TYPE
@pytest.mark.parametrize("model", ["rnn_lm", *slow("transformer_lm", "tied", "lstm_lm")])
@pytest.mark.parametrize("name", FLAGS)
def test_criteria(name, model, dtype, corpus):
    """From the same rounded parameters."""
    want, wanted = loss_and_gradients(corpus, name, MODELS[model], dtype, "cpu", torch.float64)
    got, found = loss_and_gradients(corpus, name, MODELS[model], dtype, DEVICE, dtype)
    assert got == pytest.approx(want, rel=TOLERANCE[dtype])
    assert found.keys() == wanted.keys()
    whole = torch.stack([gradient.norm() for gradient in wanted.values()]).norm()
    for parameter, gradient in found.items():
        off = (gradient.double().cpu() - wanted[parameter]).norm()
        assert off <= TOLERANCE[dtype] * max(wanted[parameter].norm(), whole / 4), parameter


def loss_and_gradients(corpus, name, model, rounded, device, dtype):
    criterion, model, sample = make(corpus, name, *model)
    criterion.prepare(model, untrained=True)
    for module in (model, criterion):
        module.to(rounded).to(device, dtype)
    loss, _, _ = criterion(model, utils.apply_to_sample(lambda x: x.to(device), sample))
    loss.backward()
    parameters = [*model.named_parameters(), *criterion.named_parameters()]
    return loss.item(), {key: p.grad for key, p in parameters if p.grad is not None}


@pytest.mark.parametrize("model", ["rnn_lm", "transformer_lm"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "row-sparse"])
@pytest.mark.parametrize("precision", PRECISIONS if DEVICE == "cuda" else ON_CPU)
def test_updates(precision, sparse, model, corpus):
    """By fairseq's own trainer, 20 of them end where those in float32 on the CPU do."""
    sparse = sparse and precision not in WITH_COPIES
    flags = [*MODELS[model], *(ROW_SPARSE if sparse else [*ADAM, "adam"])]
    start, want = losses_of_updates(corpus, flags, "cpu")
    _, got = losses_of_updates(corpus, [*flags, *PRECISIONS[precision]], DEVICE)
    assert want < 0.95 * start
    assert got == pytest.approx(want, rel=0.03)


def losses_of_updates(corpus, flags, device):
    """The first and the last, of the same batch."""
    cfg, task, model = build(corpus, *flags, "--criterion", "bnce", "--noise-samples", "7")
    cfg.common.cpu, cfg.common.tpu = device == "cpu", False  # --bf16 without a GPU implies a TPU
    trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
    batch = next(trainer.get_train_iterator(1).next_epoch_itr(shuffle=False))
    found = []
    for number in range(20):
        trainer.set_num_updates(number)
        found.append(trainer.train_step([batch])["loss"])
    return float(found[0]), float(found[-1])


@pytest.mark.gpu
@pytest.mark.parametrize("name", EACH)
def test_scores(name, language_model):
    lines = zipf_lines(20, seed=7)
    for exact in (True, False):
        want = Scorer.from_checkpoint(language_model(name), exact=exact).score(lines)
        got = Scorer.from_checkpoint(language_model(name), exact=exact, device=DEVICE).score(lines)
        np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.gpu
def test_words_that_may_come_next(language_model):
    scorers = [Scorer.from_checkpoint(language_model("rnn_lm"), device=d) for d in ("cpu", DEVICE)]
    states = [scorer.start() for scorer in scorers]
    for word in (5, 9, 5):
        want, got = (one.next_log_probs(state, [[3, word]]) for one, state in zip(scorers, states))
        np.testing.assert_allclose(got, want, rtol=1e-3)
        states = [one.extend(state, [word])[0] for one, state in zip(scorers, states)]


@pytest.mark.parametrize("model", ["rnn_lm", *slow("transformer_lm")])
@pytest.mark.parametrize("precision", PRECISIONS if DEVICE == "cuda" else slow("float32"))
def test_commands(precision, model, corpus, tmp_path):
    """Trained, resumed and scored there; scored on the CPU, it has the same perplexities."""
    flags = [*MODELS[model], "--criterion", "bnce", "--noise-samples", "7", *PRECISIONS[precision]]
    flags += ADAM + ["adam"] if precision in WITH_COPIES else ROW_SPARSE
    start = command("fairseq_cli.train", tmp_path, corpus, *flags, "--max-update", "10")
    assert "Loaded checkpoint" not in start
    resumed = command("fairseq_cli.train", tmp_path, corpus, *flags, "--max-epoch", "2")
    assert re.search(r"Loaded checkpoint .* @ 10 updates", resumed)
    checkpoint = tmp_path / "checkpoint_last.pt"
    for way in ([], ["--unnormalized"]):
        want = perplexity(evaluate(corpus, checkpoint, *way))
        halves = [[], ["--fp16"]] if DEVICE == "cuda" else [[]]
        for half in halves:
            places = [corpus, "--path", checkpoint, "--gen-subset", "valid"]
            blocks = ["--tokens-per-sample", "16", "--batch-size", "8"]
            got = perplexity(command("fairseq_cli.eval_lm", None, *places, *blocks, *way, *half))
            assert got == pytest.approx(want, rel=0.01), (way, half)


def command(module, save_dir, *arguments):
    """In a process of its own: a fork can't use a GPU that its parent has used."""
    training = [each for each in TRAINING if each != "--cpu"]
    training += ["--task", "language_modeling", "--save-dir", save_dir]
    words = [*(training if save_dir else []), *arguments, *ON_DEVICE, "--user-dir", PLUGIN]
    made = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(made, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout
