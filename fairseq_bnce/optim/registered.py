"""The optimisers of update_rules.py under fairseq's names, with what fairseq asks of them.

One optimiser serves the whole model: a parameter with a dense gradient is updated whole, one with
a row-sparse gradient in its touched rows. ``sparse_sgd`` and ``sparse_adagrad`` end where dense
ones do, since a zero gradient changes nothing under them; ``rowwise_adagrad`` too, with one
accumulator a row; ``lazy_adam`` differs from Adam (see there).
"""

import ast
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import AMPOptimizer, FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor, nn

from fairseq_bnce import ranks
from fairseq_bnce.errors import UnsupportedModelError, require
from fairseq_bnce.losses.precision import at_least_float32
from fairseq_bnce.optim import row_sparse, update_rules

_HAS_TENSOR_FACTOR = "Tensor" in torch.ops.aten._foreach_mul_.overloads()  # torch 2.1 and later
_DECAY = {"help": "weight decay; must be 0 with --row-sparse", "argparse_alias": "--wd"}


class UnsupportedOptimizerError(RuntimeError):
    """Row-sparse gradients would reach an optimiser that can't take them.

    A RuntimeError, since fairseq's trainer answers any other with a crash checkpoint.
    """


@dataclass
class SparseSGDConfig(FairseqDataclass):
    momentum: float = field(
        default=0.0, metadata={"help": "momentum factor; must be 0 with --row-sparse"}
    )
    weight_decay: float = field(default=0.0, metadata=_DECAY)
    lr: List[float] = II("optimization.lr")


@dataclass
class SparseAdagradConfig(FairseqDataclass):
    adagrad_eps: float = field(default=1e-10, metadata={"help": "added to the root of the sum"})
    adagrad_initial_accumulator: float = field(
        default=0.0, metadata={"help": "where the sums of squared gradients start"}
    )
    weight_decay: float = field(default=0.0, metadata=_DECAY)
    lr: List[float] = II("optimization.lr")


@dataclass
class LazyAdamConfig(FairseqDataclass):
    adam_betas: str = field(
        default="(0.9, 0.999)", metadata={"help": "decay of the mean and of the square"}
    )
    adam_eps: float = field(default=1e-8, metadata={"help": "added to the root of the square"})
    weight_decay: float = field(default=0.0, metadata=_DECAY)
    lr: List[float] = II("optimization.lr")


class RowSparseFairseqOptimizer(FairseqOptimizer):
    """Gradients of both kinds: exchanged between ranks, scaled, clipped; a subclass names the rule.

    Args:
        cfg: the optimiser's configuration.
        params: dense and row-sparse parameters together.
    """

    rule: type
    # Under --amp fairseq unscales the gradients itself, and calls torch's GradScaler.step() on
    # this object, which would unscale them again but for this attribute.
    _step_supports_amp_scaling = True
    found_inf: Optional[Tensor] = None

    def __init__(self, cfg: FairseqDataclass, params: Any):
        super().__init__(cfg)
        self._optimizer = self.rule(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        """The rule's options; of a run that is resumed, the checkpoint's but for the lr.

        Raises:
            ValueError: naming the flag, what was required and what came.
        """
        options = {"lr": _first(self.cfg.lr), **self.own_options()}
        return {**options, "weight_decay": _weight_decay(self.cfg)}

    def own_options(self) -> Dict[str, Any]:
        """Those that not every rule has."""
        raise NotImplementedError

    def all_reduce_grads(self, module: nn.Module) -> None:
        """Average the gradients over the ranks: the wrapper its dense ones, here the row-sparse."""
        sparse = [p for p in module.parameters() if row_sparse.is_marked(p)]
        for parameter in sparse:  # where there is none, legacy_ddp would make V-sized zeros
            parameter.grad = _gradient(parameter)
        _shrink_buffer(module)
        super().all_reduce_grads(module)
        if ranks.count() > 1:
            for parameter in sparse:
                parameter.grad = row_sparse.mean_over_ranks(_gradient(parameter))

    def multiply_grads(self, c: Any) -> None:
        _multiply([row_sparse.values(gradient) for gradient in self._merged()], c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Scale all gradients so that their norm together is at most ``max_norm``, if above 0.

        Returns:
            The norm before, the same that dense gradients have.
        """
        gradients = [row_sparse.values(gradient) for gradient in self._merged()]
        if not gradients:
            return torch.zeros((), device=next(self.params).device)
        norms = _norms(gradients)
        norm = torch.norm(torch.stack([part.to(norms[0]) for part in norms]))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            factor = (float(max_norm) / (norm + 1e-6)).clamp_(max=1)
            _multiply(gradients, factor)
        return norm

    def step(
        self, closure: Any = None, scale: float = 1.0, groups: Any = None, **scaler: Any
    ) -> None:
        """One update; none if --amp's scaler has found a gradient that is not finite."""
        if not self._has_overflowed(**scaler):
            super().step(closure, scale, groups)

    def _has_overflowed(self, grad_scaler: Any = None) -> bool:
        """By what torch's GradScaler found when fairseq had it unscale the gradients.

        torch 1.13 hands itself to ``step`` by this name, and later ones set ``found_inf``, unless
        ``step`` has a parameter of this name, for which they warn.
        """
        found = [] if self.found_inf is None else [self.found_inf]
        if grad_scaler is not None:
            found = list(grad_scaler._found_inf_per_device(self.optimizer).values())
        return any(map(bool, found))

    def _merged(self) -> List[Tensor]:
        """All gradients; row-sparse ones get each row once, without which they have no norm."""
        gradients = []
        for parameter in self.params:
            if parameter.grad is None:
                continue
            if parameter.grad.is_sparse:
                parameter.grad = row_sparse.merge(parameter.grad)
            gradients.append(parameter.grad.detach())
        return gradients


@register_optimizer("sparse_sgd", dataclass=SparseSGDConfig)
class FairseqSparseSGD(RowSparseFairseqOptimizer):
    """SGD; the same as fairseq's ``sgd``, also in the rows."""

    rule = update_rules.SparseSGD

    def own_options(self) -> Dict[str, Any]:
        fits = math.isfinite(self.cfg.momentum) and 0 <= self.cfg.momentum < 1
        require("--momentum", "at least 0 and below 1", self.cfg.momentum, fits)
        return {"momentum": self.cfg.momentum}


@register_optimizer("sparse_adagrad", dataclass=SparseAdagradConfig)
class FairseqSparseAdagrad(RowSparseFairseqOptimizer):
    """Adagrad; the same as fairseq's ``adagrad``, also in the rows."""

    rule = update_rules.SparseAdagrad

    def own_options(self) -> Dict[str, Any]:
        start = self.cfg.adagrad_initial_accumulator
        return {
            "eps": _positive("--adagrad-eps", self.cfg.adagrad_eps),
            "initial_accumulator": _from_zero("--adagrad-initial-accumulator", start),
        }


@register_optimizer("rowwise_adagrad", dataclass=SparseAdagradConfig)
class FairseqRowwiseAdagrad(FairseqSparseAdagrad):
    """Adagrad with one accumulator a row."""

    rule = update_rules.RowwiseAdagrad


@register_optimizer("lazy_adam", dataclass=LazyAdamConfig)
class FairseqLazyAdam(RowSparseFairseqOptimizer):
    """Adam that leaves untouched rows and their moments alone."""

    rule = update_rules.LazyAdam

    def own_options(self) -> Dict[str, Any]:
        return {
            "betas": _betas(self.cfg.adam_betas),
            "eps": _positive("--adam-eps", self.cfg.adam_eps),
        }


def take_row_sparse(optimizer: FairseqOptimizer) -> None:
    """Let row-sparse gradients reach one of the optimisers above, or raise.

    Args:
        optimizer: the trainer's, with what --memory-efficient-fp16, --amp and the like wrap around.

    Raises:
        UnsupportedOptimizerError: naming the flag, what is required and what came.
    """
    inner = getattr(optimizer, "wrapped_optimizer", getattr(optimizer, "fp32_optimizer", optimizer))
    if not isinstance(inner, RowSparseFairseqOptimizer):
        raise UnsupportedOptimizerError(
            "--row-sparse: required --optimizer sparse_sgd, sparse_adagrad, rowwise_adagrad or "
            f"lazy_adam, got {type(inner).__name__}, which does not take row-sparse gradients"
        )
    if isinstance(optimizer, AMPOptimizer):
        # Its own multiplies ``grad.data``, which leaves a sparse gradient silently as it was.
        optimizer.multiply_grads = inner.multiply_grads


def _norms(tensors: List[Tensor]) -> Sequence[Tensor]:
    """Their norms, summed in float32 or better."""
    if all(at_least_float32(tensor) == tensor.dtype for tensor in tensors):
        return torch._foreach_norm(tensors)
    return [torch.norm(tensor, p=2, dtype=at_least_float32(tensor)) for tensor in tensors]


def _multiply(tensors: List[Tensor], factor: Any) -> None:
    """Multiply each by a number, or by a tensor of one number."""
    if not tensors:
        return
    if not torch.is_tensor(factor):
        torch._foreach_mul_(tensors, float(factor))
    elif _HAS_TENSOR_FACTOR and len({tensor.device for tensor in tensors}) == 1:
        torch._foreach_mul_(tensors, factor.to(tensors[0].device))
    else:
        for tensor in tensors:
            tensor.mul_(factor.to(tensor.device, tensor.dtype))


def _betas(text: Any) -> Tuple[float, float]:
    """The value of --adam-betas."""
    try:
        first, second = ast.literal_eval(str(text))
        fits = all(type(beta) in (int, float) and 0 <= beta < 1 for beta in (first, second))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        fits = False
    required = "two numbers of at least 0 and below 1, as in '(0.9, 0.999)'"
    require("--adam-betas", required, repr(text), fits)
    return float(first), float(second)


def _positive(flag: str, value: float) -> float:
    require(flag, "a finite number above 0", value, math.isfinite(value) and value > 0)
    return value


def _from_zero(flag: str, value: float) -> float:
    fits = math.isfinite(value) and value >= 0
    require(flag, "a finite number of at least 0", value, fits)
    return value


def _weight_decay(cfg: FairseqDataclass) -> float:
    return _from_zero("--weight-decay", cfg.weight_decay)


def _first(lr: Any) -> float:
    return float(lr[0]) if hasattr(lr, "__getitem__") else float(lr)


def _gradient(parameter: Tensor) -> Tensor:
    """A row-sparse parameter's: one without rows where a batch has not used it.

    Raises:
        UnsupportedModelError: for a dense one, by a use of the parameter that is none by rows.
    """
    if parameter.grad is not None:
        if not row_sparse.can_be_added(parameter):
            return row_sparse.from_dense(parameter.grad)
        if not parameter.grad.is_sparse:
            raise UnsupportedModelError(
                "--row-sparse: required a decoder that reads its embeddings and its output layer "
                "by rows alone (torch.nn.Embedding, output_projection), got a dense gradient of "
                f"{' x '.join(map(str, parameter.shape))} numbers: train without --row-sparse"
            )
        return parameter.grad
    ids = torch.empty(0, dtype=torch.int64, device=parameter.device)
    return row_sparse.sparse_rows(
        ids, parameter.new_empty(0, *parameter.shape[1:]), parameter.shape
    )


def _shrink_buffer(module: nn.Module) -> None:
    """legacy_ddp's buffer, made at its first use, need not hold what legacy_ddp leaves alone."""
    if getattr(module, "buffer_size", None) and getattr(module, "buffer", None) is None:
        wrapper: Any = module
        while "buffer_size" not in vars(wrapper):  # --heartbeat-timeout wraps once more
            wrapper = wrapper.module
        dense = (p.numel() for p in module.parameters() if not row_sparse.is_marked(p))
        wrapper.buffer_size = max(min(wrapper.buffer_size, sum(dense)), 1)
