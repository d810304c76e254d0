"""The optimisers of update_rules.py under fairseq's names and with fairseq's interface.

One optimiser serves the whole model: a parameter with a dense gradient is updated whole, one with
a row-sparse gradient in its touched rows. ``sparse_sgd`` and ``sparse_adagrad`` end where dense
ones do, since a zero gradient changes nothing under them; ``rowwise_adagrad`` too, with one
accumulator a row; ``lazy_adam`` differs from Adam (see there).
"""

import ast
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import AMPOptimizer, FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor, nn

from fairseq_bnce.errors import require
from fairseq_bnce.flag import flag
from fairseq_bnce.losses.words import HALVES, at_least_float32
from fairseq_bnce.optim import row_sparse, update_rules

_TAKES_TENSORS = "Tensor" in torch.ops.aten._foreach_mul_.overloads()  # torch 2.1 and later


@dataclass
class RuleConfig(FairseqDataclass):
    """Flags of every optimiser here."""

    weight_decay: float = flag(
        0.0, "weight decay; must be 0 with --row-sparse", argparse_alias="--wd"
    )
    dense_lr_scale: float = flag(
        1.0, "what --lr is multiplied by for all but the rows of embeddings and output layer"
    )
    lr: List[float] = II("optimization.lr")


@dataclass
class SparseSGDConfig(RuleConfig):
    momentum: float = flag(0.0, "momentum factor; must be 0 with --row-sparse")


@dataclass
class SparseAdagradConfig(RuleConfig):
    adagrad_eps: float = flag(1e-10, "added to the root of the sum")
    adagrad_initial_accumulator: float = flag(0.0, "where the sums of squared gradients start")


@dataclass
class LazyAdamConfig(RuleConfig):
    adam_betas: str = flag("(0.9, 0.999)", "decay of the mean and of the square")
    adam_eps: float = flag(1e-8, "added to the root of the square")


class RowSparseFairseqOptimizer(FairseqOptimizer):
    """Exchanges, scales and clips dense and row-sparse gradients; a subclass names the rule.

    Args:
        cfg: the optimiser's configuration.
        params: dense and row-sparse parameters together. With --dense-lr-scale they are two groups.
    """

    rule: type
    own_options: Mapping[str, str]  # this rule's own: their names, and the fields that hold them
    # Under --amp fairseq unscales the gradients itself, and calls torch's GradScaler.step() on
    # this object, which would unscale them again but for this attribute.
    _step_supports_amp_scaling = True
    found_inf: Optional[Tensor] = None

    def __init__(self, cfg: FairseqDataclass, params: Iterable[nn.Parameter]):
        super().__init__(cfg)
        scale = getattr(cfg, "dense_lr_scale", 1.0)
        params = list(params)
        own = [p for p in params if scale == 1 or row_sparse.has_rows(p)]
        scaled = [p for p in params if scale != 1 and not row_sparse.has_rows(p)]
        required = "above 0, and 1 under fairseq's criteria and under plain --fp16 or --bf16"
        require("--dense-lr-scale", required, scale, scale > 0 and bool(own))
        groups = [{"params": own}, {"params": scaled, "lr_scale": scale}][: 1 + bool(scaled)]
        self._optimizer = self.rule(groups, **self.optimizer_config)
        self.set_lr(self.get_lr())

    @property
    def optimizer_config(self) -> Dict[str, object]:
        """Return the rule's options. A resumed run takes the checkpoint's, except for the lr."""
        own = {name: getattr(self.cfg, field) for name, field in self.own_options.items()}
        return {"lr": float(self.cfg.lr[0]), "weight_decay": self.cfg.weight_decay, **own}

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of rows, and its multiple for other parameters."""
        for group in self.param_groups:
            group["lr"] = lr * group.get("lr_scale", 1.0)

    def load_state_dict(self, state_dict: Dict[str, Any], optimizer_overrides: Any = None) -> None:
        """Load a state, and then options that replace its own.

        Raises:
            ValueError: for a state of another --dense-lr-scale, which replaces the flag's.
        """
        groups = state_dict["param_groups"], self.param_groups
        saved, own = ([group.get("lr_scale", 1.0) for group in some] for some in groups)
        required = f"{saved[-1]}, as in the checkpoint, or --reset-optimizer"
        require("--dense-lr-scale", required, own[-1], saved == own)
        super().load_state_dict(state_dict, optimizer_overrides)

    def all_reduce_grads(self, module: nn.Module) -> None:
        """Average gradients over the ranks: dense ones by the wrapper, row-sparse ones here."""
        sparse = list(filter(row_sparse.is_marked, module.parameters()))
        for parameter in sparse:  # where there is none, legacy_ddp would make V-sized zeros
            parameter.grad = row_sparse.gradient_of(parameter)
        if getattr(module, "buffer_size", None):
            _shrink_buffer(module)
        super().all_reduce_grads(module)
        if torch.distributed.is_initialized():
            for parameter in sparse:
                parameter.grad = row_sparse.mean_over_ranks(parameter)

    def multiply_grads(self, c: Union[float, Tensor]) -> None:
        """Multiply all gradients by a number, or by a tensor of one number."""
        gradients = self._stored_gradients()
        if not gradients:
            return
        if torch.is_tensor(c):  # float(c) would make a GPU's host wait
            c = c.to(gradients[0].device)
        factors: Any = c if _TAKES_TENSORS else [c] * len(gradients)
        torch._foreach_mul_(gradients, factors)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Scale all gradients so that their norm together is at most ``max_norm``, if above 0.

        Returns:
            The norm before, the same that dense gradients have.
        """
        gradients = self._stored_gradients()
        if not gradients:
            return torch.zeros((), device=next(self.params).device)
        if any(each.dtype in HALVES for each in gradients):  # summed in float32
            norms = [torch.norm(each, p=2, dtype=at_least_float32(each)) for each in gradients]
        else:
            norms = list(torch._foreach_norm(gradients))
        norm = torch.norm(torch.stack(norms))
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            self.multiply_grads((float(max_norm) / (norm + 1e-6)).clamp_(max=1))
        return norm

    def step(
        self, closure: object = None, scale: float = 1.0, groups: object = None, **scaler: Any
    ) -> None:
        """Update the parameters, unless --amp's scaler found a gradient that is not finite.

        torch 1.13's GradScaler passes itself as ``grad_scaler``. Later ones set ``found_inf``, and
        warn about a parameter of that name.
        """
        found = [] if self.found_inf is None else [self.found_inf]
        if scaler:
            found = scaler["grad_scaler"]._found_inf_per_device(self.optimizer).values()
        if not any(map(bool, found)):
            super().step(closure, scale, groups)

    def _stored_gradients(self) -> List[Tensor]:
        """Return all gradients' stored numbers, not copied, with each sparse row once."""
        gradients = []
        for parameter in self.params:
            gradient = parameter.grad
            if gradient is not None and gradient.is_sparse:
                # Repeated rows have no norm.
                parameter.grad = row_sparse.merge(gradient)
                gradients.append(parameter.grad._values())
            elif gradient is not None:
                gradients.append(gradient.detach())
        return gradients


@register_optimizer("sparse_sgd", dataclass=SparseSGDConfig)
class FairseqSparseSGD(RowSparseFairseqOptimizer):
    """SGD; the same as fairseq's ``sgd``, also in the rows."""

    rule = update_rules.SparseSGD
    own_options = {"momentum": "momentum"}


@register_optimizer("sparse_adagrad", dataclass=SparseAdagradConfig)
class FairseqSparseAdagrad(RowSparseFairseqOptimizer):
    """Adagrad; the same as fairseq's ``adagrad``, also in the rows."""

    rule = update_rules.SparseAdagrad
    own_options = {"eps": "adagrad_eps", "initial_accumulator": "adagrad_initial_accumulator"}


@register_optimizer("rowwise_adagrad", dataclass=SparseAdagradConfig)
class FairseqRowwiseAdagrad(FairseqSparseAdagrad):
    """Adagrad with one accumulator a row."""

    rule = update_rules.RowwiseAdagrad


@register_optimizer("lazy_adam", dataclass=LazyAdamConfig)
class FairseqLazyAdam(RowSparseFairseqOptimizer):
    """Adam that leaves untouched rows and their moments alone."""

    rule = update_rules.LazyAdam
    own_options = {"eps": "adam_eps"}

    @property
    def optimizer_config(self) -> Dict[str, object]:
        return {**super().optimizer_config, "betas": _betas(str(self.cfg.adam_betas))}


def take_row_sparse(optimizer: FairseqOptimizer) -> None:
    """Let the gradients of a trainer's optimiser be row-sparse under --amp, too."""
    if isinstance(optimizer, AMPOptimizer):
        # fairseq's method multiplies ``grad.data``, which does not change a sparse gradient.
        optimizer.multiply_grads = optimizer.fp32_optimizer.multiply_grads


def _betas(text: str) -> Tuple[float, float]:
    """Parse the value of --adam-betas, a literal that is never evaluated."""
    try:
        first, second = ast.literal_eval(text)
        fits = 0 <= first < 1 and 0 <= second < 1
    except (ValueError, SyntaxError, TypeError):
        fits = False
    required = "two numbers of at least 0 and below 1, as in '(0.9, 0.999)'"
    require("--adam-betas", required, repr(text), fits)
    return float(first), float(second)


def _shrink_buffer(wrapper: Any) -> None:
    """Leave room in legacy_ddp's buffer, before its first use, for dense gradients alone."""
    if wrapper.buffer is not None:
        return
    dense = (p.numel() for p in wrapper.parameters() if not row_sparse.is_marked(p))
    size = max(min(wrapper.buffer_size, sum(dense)), 1)
    while "buffer_size" not in vars(wrapper):  # --heartbeat-timeout wraps once more
        wrapper = wrapper.module
    wrapper.buffer_size = size
