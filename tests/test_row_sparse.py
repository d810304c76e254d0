"""Row-sparse training ends where dense training does, and touches nothing else."""

import itertools
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from architectures import FCONV
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from fairseq.optim import adam as fairseq_adam
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.trainer import Trainer
from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER, build, slow

from fairseq_bnce.optim import row_sparse, update_rules
from fairseq_bnce.optim.registered import FairseqSparseSGD, _shrink_buffer, take_row_sparse

pytestmark = pytest.mark.usefixtures("empty_folder")

TIED_LSTM = [*LSTM, "--share-decoder-input-output-embed"]
ARCHITECTURES = {"lstm": LSTM, "tied lstm": TIED_LSTM, "fconv": FCONV}
ARCHITECTURES.update({"transformer": TRANSFORMER, "tied transformer": TIED_TRANSFORMER})
UPDATES = 12


def trained(corpus, *flags, updates=UPDATES, frequency=1, dtype=torch.float64, seen=None):
    """Parameters by name after some updates by fairseq's trainer, and all gradient norms.

    In float64, where a difference between two ways is none of rounding. ``seen`` is called with
    the trainer and the samples before each update.
    """
    cfg, task, model = build(corpus, *flags, "--num-workers", "0")
    if "fp16" in cfg.criterion:
        cfg.criterion.fp16 = False  # refused on a CPU, which stands for a GPU here
    criterion = task.build_criterion(cfg.criterion)
    trainer = Trainer(cfg, task, model.to(dtype), criterion)
    batches = itertools.cycle(list(trainer.get_train_iterator(1).next_epoch_itr(shuffle=False)))
    norms, clip = [], trainer.clip_grad_norm
    trainer.clip_grad_norm = lambda limit: norms.append(clip(limit)) or norms[-1]
    for number in range(updates):
        trainer.set_num_updates(number)
        samples = list(itertools.islice(batches, frequency))
        if seen is not None:
            seen(trainer, samples)
        trainer.train_step(samples)
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    return parameters, [norm.item() for norm in norms]


def assert_same(one, other, tolerance=1e-6):
    assert one.keys() == other.keys()
    for name, value in one.items():
        error = (value - other[name]).norm() / other[name].norm()
        assert error <= tolerance, (name, error)


def test_names_that_a_model_hides_from_ddp_itself_stay_hidden():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.Linear(2, 2))
    model._ddp_params_and_buffers_to_ignore = ["1.bias"]
    for _ in range(2):
        row_sparse.mark(model)
    assert sorted({*model._ddp_params_and_buffers_to_ignore}) == ["0.weight", "1.bias"]


def test_legacy_ddps_buffer_is_found_under_every_wrapper():
    """--heartbeat-timeout is one more; the buffer would be of the size of all parameters."""
    model = torch.nn.Sequential(torch.nn.Embedding(1000, 8), torch.nn.Linear(8, 2))
    row_sparse.mark(model, legacy_ddp=True)
    for wrappers in range(3):
        wrapped = wrapper = LegacyDistributedDataParallel(model, None, buffer_size=9000)
        for _ in range(wrappers):
            wrapped = ModuleProxyWrapper(wrapped)
        _shrink_buffer(wrapped)
        assert wrapper.buffer_size == 18


# Rows of an output layer alone, and shared with the embeddings.
SPARSE = [("sparse_sgd", "lstm"), ("sparse_adagrad", "tied transformer")]
SPARSE += slow(
    ("sparse_sgd", "tied lstm"), ("sparse_adagrad", "fconv"), ("sparse_sgd", "transformer")
)
LR = {"sparse_sgd": "0.1", "sparse_adagrad": "0.05"}


@pytest.mark.parametrize("optimizer, architecture", SPARSE)
def test_same_as_dense(architecture, optimizer, corpus):
    """With gradients of two batches together, and norms above the limit."""
    flags = [*ARCHITECTURES[architecture], "--criterion", "bnce", "--clip-norm", "0.004"]
    flags += ["--optimizer", optimizer, "--lr", LR[optimizer]]
    dense, dense_norms = trained(corpus, *flags, frequency=2)
    sparse, sparse_norms = trained(corpus, *flags, "--row-sparse", frequency=2)
    assert_same(sparse, dense)
    assert sparse_norms == pytest.approx(dense_norms, rel=1e-5)
    assert max(dense_norms) > 0.004


@pytest.mark.parametrize("criterion", ["bnce --row-sparse", "self_norm_softmax"])
def test_dense_parameters_have_a_rate_of_their_own(criterion, corpus):
    flags = [*LSTM, "--optimizer", "sparse_sgd", "--criterion", *criterion.split()]
    run = partial(trained, corpus, *flags, "--lr", "0.5", "--dense-lr-scale")
    start, whole, half = run("1", updates=0)[0], run("1", updates=1)[0], run("0.5", updates=1)[0]
    for name, value in start.items():
        is_rows = "embed_tokens" in name or "fc_out" in name
        moved = (half[name] - value) / (1 if is_rows else 0.5)
        assert torch.allclose(moved, whole[name] - value) and moved.any(), name


@pytest.mark.parametrize("criterion, scale", [("cross_entropy", "0.5"), ("bnce", "-0.5")])
def test_the_rate_of_dense_parameters_is_above_0_and_needs_rows(criterion, scale, corpus):
    flags = [*LSTM, "--criterion", criterion, "--optimizer", "sparse_sgd"]
    with pytest.raises(ValueError, match="--dense-lr-scale"):
        trained(corpus, *flags, "--dense-lr-scale", scale)


def test_a_state_goes_on_with_its_rate_of_dense_parameters(corpus):
    """Another one would be ignored, or leave torch with groups of other sizes."""
    states = []
    flags = [*LSTM, "--criterion", "bnce", "--optimizer", "sparse_adagrad", "--row-sparse"]

    def seen(trainer, samples):
        optimizer = trainer.optimizer
        for state in states:
            with pytest.raises(ValueError, match="--dense-lr-scale"):
                optimizer.load_state_dict(state)
        states.append(optimizer.state_dict())
        optimizer.load_state_dict(states[-1])

    for scale in ("1", "0.5", "0.25"):
        trained(corpus, *flags, "--dense-lr-scale", scale, updates=1, seen=seen)
    assert len(states) == 3


def test_dense_is_as_fairseqs_own(corpus):
    """With its clipping, which is in float32: to that precision."""
    flags = [*LSTM, "--criterion", "bnce", "--clip-norm", "0.004", "--lr", "0.05", "--optimizer"]
    run = partial(trained, corpus, *flags, dtype=torch.float32)
    ours, theirs = run("sparse_adagrad"), run("adagrad")
    assert_same(ours[0], theirs[0], tolerance=1e-5)
    assert ours[1] == pytest.approx(theirs[1], rel=1e-5)


def test_untouched_rows_stay_as_they_are(corpus):
    """Bit by bit, while every row of a word that was read or used as noise moves."""
    flags = [*LSTM, "--criterion", "shared_nce", "--noise-samples", "5", "--row-sparse"]
    flags += ["--optimizer", "sparse_adagrad", "--lr", "0.1"]
    start, _ = trained(corpus, *flags, updates=0)
    batches = []
    end, _ = trained(corpus, *flags, updates=2, seen=lambda _, samples: batches.extend(samples))
    embedding, output = "decoder.embed_tokens.weight", "decoder.fc_out.weight"
    read = set(torch.cat([b["net_input"]["src_tokens"].flatten() for b in batches]).tolist())
    targets = set(torch.cat([b["target"].flatten() for b in batches]).tolist())
    assert moved(start[embedding], end[embedding]) == read - {1}
    of_output = moved(start[output], end[output])
    assert targets - {1} <= of_output and len(of_output) <= len(targets) + 10
    assert of_output == moved(start["decoder.fc_out.bias"], end["decoder.fc_out.bias"])
    assert len(of_output) < len(start[output])


def moved(before, after):
    """The rows that differ."""
    return set((before != after).reshape(len(before), -1).any(1).nonzero().flatten().tolist())


def adagrad(parameters, initial_accumulator, **options):
    options["initial_accumulator_value"] = initial_accumulator
    return torch.optim.Adagrad(parameters, **options)


RULES = {
    "momentum": (update_rules.SparseSGD, torch.optim.SGD, {"momentum": 0.9}),
    "adagrad": (update_rules.SparseAdagrad, adagrad, {"eps": 0.01, "initial_accumulator": 0.5}),
    "adam": (update_rules.LazyAdam, fairseq_adam.Adam, {"betas": (0.7, 0.95), "eps": 0.01}),
}


@pytest.mark.parametrize("name", RULES)
def test_dense_gradients_get_the_well_known_rules(name):
    ours, theirs, options = RULES[name]
    options = {**options, "lr": 0.3, "weight_decay": 0.1}
    start = torch.randn(5, 3, dtype=torch.float64)
    parameters = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    optimizers = [rule([p], **options) for rule, p in zip((ours, theirs), parameters)]
    for _ in range(7):
        gradient = torch.randn_like(start)
        for parameter, optimizer in zip(parameters, optimizers):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(parameters[0], parameters[1], rtol=1e-12, atol=1e-12)


def some_rows(generator, shape=(6, 3)):
    """A gradient with a repeated row, and the same as a dense one."""
    ids = torch.tensor([4, 1, 4])
    rows = torch.randn(3, *shape[1:], generator=generator, dtype=torch.float64)
    sparse = row_sparse.sparse_rows(ids, rows, torch.Size(shape))
    return sparse, sparse.to_dense()


def test_rowwise_adagrad_by_hand():
    generator = torch.Generator().manual_seed(1)
    parameter = torch.nn.Parameter(torch.zeros(6, 3, dtype=torch.float64))
    optimizer = update_rules.RowwiseAdagrad([parameter], lr=0.5, initial_accumulator=0.1)
    want, total = torch.zeros(6, 3, dtype=torch.float64), torch.full((6, 1), 0.1).double()
    for _ in range(3):
        parameter.grad, dense = some_rows(generator)
        optimizer.step()
        total += dense.square().mean(1, keepdim=True)
        want -= 0.5 * dense / (total.sqrt() + 1e-10)
    torch.testing.assert_close(parameter.data, want)
    assert optimizer.state[parameter]["sum"].shape == (6, 1)


def test_lazy_adam_is_adam_in_rows_that_are_always_touched():
    generator = torch.Generator().manual_seed(1)
    lazy, usual = (torch.nn.Parameter(torch.ones(6, 3, dtype=torch.float64)) for _ in range(2))
    ours = update_rules.LazyAdam([lazy], lr=0.1)
    theirs = fairseq_adam.Adam([usual], lr=0.1)
    for _ in range(5):
        lazy.grad, usual.grad = some_rows(generator)
        ours.step()
        theirs.step()
    touched = [1, 4]
    torch.testing.assert_close(lazy[touched], usual[touched])
    assert torch.equal(lazy[[0, 2, 3, 5]], torch.ones(4, 3, dtype=torch.float64))


def test_merged_in_float32():
    """257 bfloat16 ones: summed in bfloat16 they would stay at 256."""
    ids, rows = torch.zeros(300, dtype=torch.int64), torch.ones(300, 2, dtype=torch.bfloat16)
    merged = row_sparse.merge(row_sparse.sparse_rows(ids, rows, torch.Size([4, 2])))
    assert merged.dtype == torch.bfloat16 and merged._nnz() == 1
    assert torch.equal(merged._values(), torch.full((1, 2), 300.0).bfloat16())


@pytest.mark.parametrize("option", ["momentum", "weight_decay"])
def test_options_that_rows_cannot_follow_are_refused(option):
    """They may be a checkpoint's, and not the flags' (test_flags.py)."""
    parameter = torch.nn.Parameter(torch.ones(6, 3))
    optimizer = update_rules.SparseSGD([parameter], lr=0.1, **{option: 0.1})
    parameter.grad = row_sparse.sparse_rows(torch.tensor([2]), torch.ones(1, 3), parameter.shape)
    with pytest.raises(ValueError, match=f"--{option.replace('_', '-')}: "):
        optimizer.step()


@pytest.mark.modern
@pytest.mark.parametrize("overflow", [False, True])
def test_amp_scales_and_unscales_once(overflow, corpus, monkeypatch):
    """fairseq's --amp wrapper around a row-sparse optimiser."""
    monkeypatch.setattr(torch.cuda.amp, "GradScaler", partial(torch.amp.GradScaler, "cpu"))
    flags = [*LSTM, "--criterion", "bnce", "--row-sparse", "--optimizer", "sparse_sgd", "--lr", "1"]
    plain, _ = trained(corpus, *flags, updates=1, dtype=torch.float32)
    cfg, task, model = build(corpus, *flags, "--num-workers", "0")
    criterion = task.build_criterion(cfg.criterion)
    cfg.common.amp = True
    amp = AMPOptimizer.build_optimizer(cfg, list(model.parameters()))
    take_row_sparse(amp)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = Trainer(cfg, task, model, criterion)
    sample = next(trainer.get_train_iterator(1).next_epoch_itr(shuffle=False))
    trainer.set_num_updates(0)
    trainer._set_seed()
    loss, size, _ = criterion(model.train(), sample)
    amp.backward(loss * (float("inf") if overflow else 1))
    amp.all_reduce_grads(model)
    amp.multiply_grads(1 / size)
    amp.clip_grad_norm(0.0)
    amp.step()
    end = {name: p.detach() for name, p in model.named_parameters()}
    assert_same(end, start if overflow else plain, tolerance=1e-6)
    assert overflow or moved(start["decoder.fc_out.weight"], end["decoder.fc_out.weight"])


@pytest.mark.parametrize("found, after", [(0.0, 0.0), (1.0, 1.0)])
def test_torch_1_13s_scaler_passes_itself(found, after):
    """The optimiser asks it for what it found; later ones set ``found_inf``."""
    parameter = torch.nn.Parameter(torch.ones(1))
    cfg = SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0)
    optimizer = FairseqSparseSGD(cfg, [parameter])
    parameter.grad = torch.ones(1)
    scaler = SimpleNamespace(_found_inf_per_device=lambda _: {"cpu": torch.tensor(found)})
    optimizer.step(grad_scaler=scaler)
    assert parameter.item() == after
