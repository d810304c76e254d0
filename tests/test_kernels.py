"""The fused kernel against float64, by Triton's interpreter where there is no GPU."""

import logging
import os
import subprocess
import sys

import pytest
import reference
import torch
from loss_cases import assert_near, call, gradients, make_problem, with_gradients

from fairseq_bnce import losses
from fairseq_bnce.losses import kernel_choice, shared_scores
from fairseq_bnce.losses.shared_scores import BinaryNCE, Ranking, shared_loss

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Where today's environment has Triton, nothing here may be skipped in silence.
if torch.__version__ < "2" or sys.platform != "linux":
    pytest.importorskip("triton")
with pytest.MonkeyPatch.context() as _environment:
    if DEVICE == "cpu":  # conftest.py has set it, too, before Triton's own kernels were defined
        _environment.setenv("TRITON_INTERPRET", "1")
    from fairseq_bnce.losses import kernels

# Losses as exact as float32 sums; gradients from a G in the inputs' dtype, which the interpreter,
# unlike a GPU, rounds towards zero.
TOLERANCE = {torch.float32: (1e-5, 1e-5), torch.float16: (1e-5, 2e-3), torch.bfloat16: (1e-5, 2e-2)}
ALL_TYPES = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "half", "bfloat16"])


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """The kernel is used for all that it takes, in small tiles; what its calls were given."""
    small = kernels.Blocks(contexts=32, words=64, size=32, warps=4, stages=2)
    monkeypatch.setattr(kernels, "_BLOCKS", {2: small, 4: small})
    monkeypatch.setenv("FAIRSEQ_BNCE_KERNEL", "triton")
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")  # a first launch asks for it again
    calls, binary_nce = [], kernels.binary_nce

    def counted(features, *args, **kwargs):
        calls.append(features.dtype)
        return binary_nce(features, *args, **kwargs)

    monkeypatch.setattr(kernels, "binary_nce", counted)
    return calls


@pytest.fixture
def in_chunks(monkeypatch):
    monkeypatch.setattr(shared_scores, "_CHUNK_SCORES", {"cpu": 2800, "gpu": 2800})


def make_inputs(dtype, size=40, bias=True):
    """75 contexts and 70 words: (features, weight, bias) that need gradients, and an objective."""
    rng = torch.Generator().manual_seed(1)
    inputs = [torch.randn(n, size, generator=rng) / size**0.5 for n in (75, 70)]
    inputs[0] *= 3
    inputs.append(torch.randn(70, generator=rng) if bias else None)
    wide = torch.promote_types(dtype, torch.float32)
    kinds = (dtype, dtype, wide)  # a bias never comes in halves
    inputs = [x if x is None else x.to(DEVICE, d).requires_grad_() for x, d in zip(inputs, kinds)]
    words = torch.randint(70, (75,), generator=rng).to(DEVICE)
    offset = torch.randn(70, generator=rng).to(DEVICE, wide) + 2
    counts = torch.randint(1, 9, (70,), generator=rng).to(DEVICE, wide)
    return inputs, BinaryNCE(offset, counts, words)


def in_float64(inputs, objective, weights):
    """Losses and gradients of their weighted sum, by autograd, written from the equation."""
    exact = [None if x is None else x.detach().double().requires_grad_() for x in inputs]
    features, weight, bias = exact
    log_odds = features @ weight.t() - objective.offset.double() + (0 if bias is None else bias)
    found = torch.logaddexp(log_odds, log_odds.new_zeros(())) @ objective.counts.double()
    found = found - log_odds.gather(1, objective.target[:, None])[:, 0]
    (found * weights).sum().backward()
    return found.detach(), [None if x is None else x.grad for x in exact]


def assert_right(inputs, objective, calls, weights=None):
    """Losses and gradients of shared_loss, summed or weighted one by one, are those of float64."""
    ours = torch.ones(75, device=DEVICE) if weights is None else weights
    of_loss, of_gradient = TOLERANCE[inputs[0].dtype]
    values, wanted = in_float64(inputs, objective, ours.double())
    found = shared_loss(*inputs, objective, "none" if weights is not None else "sum")
    assert found.dtype == torch.float32
    want = values if weights is not None else values.sum()
    assert_near(found, want, of_loss)
    (found if weights is None else found * weights).sum().backward()
    for tensor, gradient in zip(inputs, wanted):
        if tensor is not None:
            assert tensor.grad.dtype == tensor.dtype
            assert_near(tensor.grad, gradient, of_gradient)
    assert calls and set(calls) == {inputs[0].dtype}


@ALL_TYPES
@pytest.mark.parametrize("bias", [True, False])
def test_agrees_with_float64(dtype, bias, forced):
    """Neither 75 nor 70 nor 40 is a multiple of a tile's side."""
    inputs, objective = make_inputs(dtype, bias=bias)
    assert_right(inputs, objective, forced)
    assert len(forced) == 1


@ALL_TYPES
def test_agrees_in_chunks_and_whole_slices(dtype, forced, in_chunks):
    inputs, objective = make_inputs(dtype, size=32)
    assert_right(inputs, objective, forced)
    assert len(forced) == 2


@ALL_TYPES
def test_agrees_where_every_token_has_its_weight(dtype, forced, in_chunks):
    """reduction "none": G is made again in the backward pass, and weighted before its rounding."""
    inputs, objective = make_inputs(dtype)
    weights = torch.linspace(-1, 2, 75, device=DEVICE)
    assert_right(inputs, objective, forced, weights)
    assert len(forced) == 4


def test_weights_that_are_one_number(forced):
    """As the gradient of a plain sum is: expanded, with nothing behind it in memory."""
    inputs, objective = make_inputs(torch.float32)
    found = shared_loss(*inputs, objective, "none")
    filler = torch.full((1000,), float("nan"))
    found.backward(filler[:1].fill_(1.0).expand(75).to(DEVICE))
    wanted = in_float64(inputs, objective, torch.ones(75, device=DEVICE))[1]
    for tensor, gradient in zip(inputs, wanted):
        assert_near(tensor.grad, gradient, 1e-5)


@ALL_TYPES
def test_agrees_where_scores_are_extreme(dtype, forced):
    """Scores in the hundreds: e^score overflows float32."""
    inputs, objective = make_inputs(dtype)
    with torch.no_grad():
        inputs[0] *= 100
    assert_right(inputs, objective, forced)


def test_small_odds_are_not_rounded_away(forced):
    """Noise of odds 1e-9: log(1 + odds) is 0 in float32 unless it is computed with care."""
    inputs, objective = make_inputs(torch.float32)
    offset, counts = objective.offset + 20, objective.counts.clone()
    offset[0], counts[0] = -60, 1  # of the target, always: it adds nothing
    objective = BinaryNCE(offset, counts, torch.zeros_like(objective.target))
    assert in_float64(inputs, objective, torch.ones(75, device=DEVICE))[0].max() < 1e-4
    assert_right(inputs, objective, forced)


def test_results_are_the_same_from_run_to_run(forced):
    inputs, objective = make_inputs(torch.bfloat16)
    first, second = (
        torch.autograd.grad(shared_loss(*inputs, objective, "sum"), inputs) for _ in "ab"
    )
    assert all(torch.equal(one, other) for one, other in zip(first, second))


@pytest.mark.parametrize("contexts, words", [(0, 70), (75, 0)])
def test_nothing_to_score(contexts, words, forced):
    inputs, objective = make_inputs(torch.bfloat16)
    features, weight, bias = (x.detach() for x in inputs)
    features, weight = features[:contexts].requires_grad_(), weight[:words].requires_grad_()
    some = BinaryNCE(*(part[:words] for part in objective[:2]), objective.target[:contexts])
    loss = shared_loss(features, weight, bias[:words], some, "sum")
    assert loss.item() == 0
    loss.backward()
    assert not features.grad.any() and not weight.grad.any()


def test_strided_inputs(forced):
    inputs, objective = make_inputs(torch.float32)
    views = [inputs[0].detach().t().contiguous().t(), inputs[1].detach(), inputs[2].detach()]
    assert views[0].stride(1) != 1
    assert_right([view.requires_grad_() for view in views], objective, forced)


# ---- through the losses ------------------------------------------------------------------------


def on_device(problem):
    return {key: None if x is None else x.to(DEVICE) for key, x in problem.items()}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("name", ["bnce", "bnce_noise"])
@ALL_TYPES
def test_losses_agree_with_the_reference(name, dtype, bias, forced):
    problem = with_gradients(on_device(make_problem(37, bias=bias)), dtype)
    exact = with_gradients(make_problem(37, bias=bias), torch.float64)
    with torch.no_grad():
        for key in ("features", "weight", "bias")[: 3 if bias else 2]:
            exact[key].copy_(problem[key])
    want = call(reference, name, exact, log_z=0.5).sum()
    loss = call(losses, name, problem, log_z=0.5)
    of_loss, of_gradient = TOLERANCE[dtype]
    assert_near(loss.cpu(), want.detach(), of_loss)
    wanted = gradients(want, exact)
    for key, gradient in gradients(loss, problem).items():
        assert gradient.dtype == dtype
        assert_near(gradient.cpu(), wanted[key], of_gradient)
    assert forced == [dtype]


def test_halves_are_not_raised_on_the_way(forced):
    """Nothing of the size of the features is held in float32."""
    problem = with_gradients(on_device(make_problem(37)), torch.bfloat16)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        call(losses, "bnce", problem, reduction="none").sum().backward()
    assert all(x.dtype != torch.float32 or x.dim() < 2 for x in saved)


# ---- who uses it -------------------------------------------------------------------------------


def is_fused(features, weight, **options):
    return kernel_choice.is_fused(features, weight, None, **options)


def test_the_kernel_is_for_halves_on_a_gpu():
    features = {d: torch.zeros(3, 4, dtype=d) for d in (*TOLERANCE, torch.float64)}
    for kernel in ("auto", "torch"):
        assert not any(is_fused(x, x, kernel=kernel) for x in features.values())
    triton = {"kernel": "triton"}
    if DEVICE == "cpu":
        assert all(is_fused(features[d], features[d], **triton) for d in TOLERANCE)
    assert not is_fused(features[torch.float64], features[torch.float64], **triton)
    assert not is_fused(features[torch.float16], features[torch.bfloat16], **triton)


def test_a_kernel_that_is_asked_for_in_vain_is_told_of_once(caplog):
    """As under --amp, where rows are float32."""
    kernel_choice._tell_once.cache_clear()
    features, rows = torch.zeros(3, 4, dtype=torch.float16), torch.zeros(3, 4)
    with caplog.at_level(logging.INFO):
        assert not any(is_fused(features, rows, kernel="triton") for _ in range(2))
    assert caplog.text.count("not used for torch.float16 with torch.float32") == 1


def test_an_argument_chooses_before_the_environment(monkeypatch, forced):
    """Which is read at the time of the call; without either it is torch."""
    problem = on_device(make_problem(7))
    for environment, argument, calls in (
        (None, None, 0),
        ("torch", "triton", 1),
        ("triton", None, 1),
        ("triton", "torch", 0),
    ):
        if environment is None:
            monkeypatch.delenv("FAIRSEQ_BNCE_KERNEL")
        else:
            monkeypatch.setenv("FAIRSEQ_BNCE_KERNEL", environment)
        forced.clear()
        call(losses, "bnce", problem, kernel=argument)
        assert len(forced) == calls, (environment, argument)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gpu_uses_the_kernel_by_itself(dtype, monkeypatch, forced):
    monkeypatch.setenv("FAIRSEQ_BNCE_KERNEL", "auto")
    inputs, objective = make_inputs(dtype)
    assert kernel_choice.is_fused(*inputs)  # its check of itself is done here, and once
    forced.clear()
    assert_right(inputs, objective, forced)


def test_a_wrong_setting_is_told(monkeypatch):
    features = torch.zeros(3, 4)
    monkeypatch.setenv("FAIRSEQ_BNCE_KERNEL", "cuda")
    with pytest.raises(
        ValueError, match="FAIRSEQ_BNCE_KERNEL: required auto, torch or triton, got 'cuda'"
    ):
        is_fused(features, features)
    with pytest.raises(ValueError, match="^kernel: required auto, torch or triton, got 'fast'"):
        call(losses, "bnce", make_problem(7), kernel="fast")
    monkeypatch.setattr(kernel_choice, "triton_kernels", lambda: None)
    with pytest.raises(ValueError, match="required the package triton for 'triton', got none"):
        is_fused(features, features, kernel="triton")


def test_other_losses_are_torchs(forced):
    inputs, (offset, counts, target) = make_inputs(torch.float32)
    for objective in (Ranking(offset, target, 0.1, 0.0), BinaryNCE(offset, counts)):
        shared_loss(*inputs, objective, "sum").backward()
    assert not forced


VARIANT = {"size": 64, "bias": True, "factor": True, "gradient": True}


def check(dtype, **changes):
    """Of one variant, made anew."""
    variant = {**VARIANT, **changes}
    return kernels.is_right.__wrapped__(torch.device(DEVICE), dtype, **variant)


@ALL_TYPES
@pytest.mark.parametrize("size", [64, 72])
def test_every_variant_passes_its_check(dtype, size):
    for missing in ([], ["bias", "factor"], ["bias", "factor", "gradient"]):
        assert check(dtype, size=size, **dict.fromkeys(missing, False)), missing


@ALL_TYPES
def test_a_kernel_that_is_wrong_is_not_used(dtype, monkeypatch, caplog):
    right = kernels.binary_nce

    def wrong(*args, **kwargs):
        values, matrix = right(*args, **kwargs)
        return values, matrix * 1.1

    def broken(*args, **kwargs):
        raise RuntimeError("no compiler")

    with caplog.at_level(logging.WARNING):
        for other, reason in ((wrong, "G: required"), (broken, "no compiler")):
            monkeypatch.setattr(kernels, "binary_nce", other)
            assert not check(dtype)
            assert reason in caplog.records[-1].getMessage()


@pytest.mark.parametrize("option", ["size", "bias", "factor", "gradient"])
def test_the_variant_that_is_checked_is_the_one_that_is_asked_for(option, monkeypatch):
    """One that is wrong in a single way fails its own check, and no other."""
    right, variant = kernels.binary_nce, VARIANT
    other = {**variant, option: 72 if option == "size" else False}

    def wrong(features, weight, bias, offset, counts, target, *, factor=None, gradient=True):
        values, matrix = right(
            features, weight, bias, offset, counts, target, factor=factor, gradient=gradient
        )
        got = (features.size(1), bias is not None, factor is not None, gradient)
        return (values + 1 if got == tuple(other.values()) else values), matrix

    monkeypatch.setattr(kernels, "binary_nce", wrong)
    assert check(torch.float32, **variant) and not check(torch.float32, **other)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_what_is_checked_is_what_is_called(reduction, with_bias, monkeypatch, forced):
    """As on a GPU: all calls of a loss and its backward pass are of variants that were checked."""
    checked, called, binary_nce = [], [], kernels.binary_nce
    monkeypatch.setattr(kernels, "is_right", lambda *args: checked.append(args[2:]) or True)
    monkeypatch.setattr(kernel_choice, "_is_wanted", lambda features: True)

    def noted(features, weight, bias, offset, counts, target, *, factor, gradient):
        sizes = features.size(1), bias is not None
        called.append((*sizes, factor is not None, gradient))
        return binary_nce(
            features, weight, bias, offset, counts, target, factor=factor, gradient=gradient
        )

    monkeypatch.setattr(kernels, "binary_nce", noted)
    inputs, objective = make_inputs(torch.float16, bias=with_bias)
    shared_loss(*inputs, objective, reduction, "auto").sum().backward()
    assert called and set(called) == set(checked)
    with torch.no_grad():
        shared_loss(*inputs, objective, reduction, "auto")
    assert set(called) == set(checked) and not checked[-1][-1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_what_lies_between_the_rows_of_g_is_no_part_of_a_product(dtype, forced, monkeypatch):
    """New memory holds NaN here; a CPU's products of halves may read past the columns."""
    new_empty = torch.Tensor.new_empty

    def filled(new):
        return new.fill_(float("nan")) if new.is_floating_point() else new

    monkeypatch.setattr(
        torch.Tensor,
        "new_empty",
        lambda self, *args, **kwargs: filled(new_empty(self, *args, **kwargs)),
    )
    rows = kernels._empty_rows(torch.zeros(5, 3, dtype=dtype, device=DEVICE), 70)
    assert rows.shape == (5, 70) and rows.stride(0) == 128
    assert not rows.as_strided((5, 58), (128, 1), 70).any()
    inputs, objective = make_inputs(dtype)
    assert_right(inputs, objective, forced)


def test_the_check_draws_nothing_from_trainings_generator():
    state = torch.get_rng_state()
    check(torch.float32)
    assert torch.equal(torch.get_rng_state(), state)


COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fairseq_bnce.losses import kernels

blocks = kernels._BLOCKS[2]
types = dict.fromkeys(("features", "weight", "gradient"), "*bf16")
types.update(dict.fromkeys(("shift", "counts", "losses"), "*fp32"), target="*i64")
values = dict(BLOCK_N=blocks.contexts, BLOCK_U=blocks.words, BLOCK_D=blocks.size)
values.update(GROUP=8, IS_WHOLE=False, RAISES=False, factor=None)
kernel = kernels._binary_nce
signature = {n: types.get(n, "constexpr" if n in values else "i32") for n in kernel.arg_names}
source = ASTSource(kernel, signature, {(kernel.arg_names.index(n),): v for n, v in values.items()})
options = {"num_warps": blocks.warps, "num_stages": blocks.stages}
made = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
print("shared", made.metadata.shared)
"""


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_the_kernel_compiles_for_gpus_that_are_not_here(capability, tmp_path):
    """With the compiler that Triton brings; in a process without its interpreter."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability)], env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    # What a program may have on the smallest GPUs of these generations, 8.6 and 8.9.
    assert int(done.stdout.split()[-1]) <= 99 * 1024


def test_groups_of_blocks(forced, monkeypatch):
    """More blocks of contexts than a group has: each tile is some program's."""
    monkeypatch.setattr(kernels, "_GROUP", 2)  # of 3
    inputs, objective = make_inputs(torch.float32)
    assert_right(inputs, objective, forced)
