"""How often a training step makes the host wait for a GPU, and what it launches there."""

import contextlib
import warnings
from typing import Any, List

import pytest
import torch
from criteria import FLAGS, make
from dispatch import Kernels
from fairseq.trainer import Trainer
from loss_cases import TARGETED, call, make_problem, with_gradients
from tools import LSTM, TIED_TRANSFORMER, build, modern
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_bnce import losses
from fairseq_bnce.output_layer.layer import OutputLayer

# Groups have to be told apart, which waits.
STEPS = {name: flags for name, flags in FLAGS.items() if " by " not in name}
for _name in ("bnce", "shared_nce"):
    STEPS[f"{_name} row-sparse"] = [*FLAGS[_name], "--row-sparse", "--optimizer", "lazy_adam"]
EACH_STEP = ["bnce", *modern(*list(STEPS)[1:])]


@pytest.fixture
def step(corpus, monkeypatch):
    """(criterion, model, batch, features) of a training step that has its features already."""

    def made(name, device):
        criterion, model, sample = make(corpus, name, *LSTM, *STEPS[name])
        criterion.prepare(model, untrained=True)
        features = OutputLayer(model).features(model, sample["net_input"]).detach().to(device)
        monkeypatch.setattr(OutputLayer, "features", lambda *_: features.requires_grad_())
        sample = {**sample, "target": sample["target"].to(device)}
        return criterion.to(device), model.to(device), sample, features

    return made


@pytest.mark.parametrize("name", EACH_STEP)
def test_a_training_step_waits_twice(name, step, monkeypatch):
    criterion, model, sample, features = step(name, "cpu")
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
LAUNCHES = [
    ("cross_entropy", [], 253),
    ("bnce", [], 301),
    ("bnce", ["--row-sparse", "--optimizer", "lazy_adam"], 315),
    ("shared_nce", ["--noise-samples", "9"], 329),
]


@pytest.mark.modern
@pytest.mark.parametrize("criterion, flags, most", LAUNCHES)
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


@pytest.mark.gpu
@pytest.mark.parametrize("name", STEPS)
def test_what_a_gpu_says(name, step):
    """torch's own count of the same."""
    criterion, model, sample, features = step(name, "cuda")
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


# Operators whose result's size depends on the data, or whose result the host itself reads.
OPERATORS = {"_local_scalar_dense", "item", "is_nonzero", "equal", "nonzero", "masked_select"}
OPERATORS |= {"_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
OPERATORS |= {"bincount", "masked_scatter", "masked_scatter_", "argwhere", "_coalesce", "coalesce"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Methods that read a tensor without an operator, where it is on the CPU already.
METHODS = {"tolist", "numpy", "cpu", "__array__"}


class _Operators(TorchDispatchMode):
    def __init__(self, found: List[str]):
        super().__init__()
        self.found = found
        self.seeds: List[Any] = []  # from the CPU's own generator: nothing to wait for

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if self._waits(name, args, kwargs or {}):
            self.found.append(name)
        result = func(*args, **(kwargs or {}))
        if name == "randint" or self._is_seed(args):
            self.seeds.append(result)
        return result

    def _waits(self, name: str, args: Any, kwargs: Any) -> bool:
        if name in INDEXING:
            return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        if name == "repeat_interleave":
            return kwargs.get("output_size") is None
        return name in OPERATORS and not self._is_seed(args)

    def _is_seed(self, args: Any) -> bool:
        return any(args[0] is seed for seed in self.seeds) if args else False


class _Methods(TorchFunctionMode):
    def __init__(self, found: List[str]):
        super().__init__()
        self.found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in METHODS:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Synchronising(contextlib.ExitStack):
    """A context; afterwards ``found`` holds the names of what would have made the host wait."""

    def __enter__(self) -> "Synchronising":
        self.found: List[str] = []
        for mode in (_Operators, _Methods):
            self.enter_context(mode(self.found))
        return self
