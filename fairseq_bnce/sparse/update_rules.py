"""Update rules that touch the rows that have a gradient, and no others (torch.optim, no fairseq).

Each rule is one in-place function of the values and accumulators that it is handed: those of a
whole parameter for a dense gradient, or of the touched rows for a row-sparse one. Parameters in
half precision keep a float32 master, to which the rule is applied, and which is rounded to them.
"""

import math
from itertools import chain
from typing import Any, Callable, Dict, FrozenSet, Iterable, Optional, Sequence, Union

import torch
from torch import Tensor

from fairseq_bnce.losses.precision import HALVES, at_least_float32
from fairseq_bnce.sparse import row_sparse

Tensors = Dict[str, Tensor]


class RowSparseOptimizer(torch.optim.Optimizer):
    """Shared by all rules; a subclass says what :meth:`rule` is, and what is :meth:`needed` for it.

    Args:
        parameters: as torch.optim has them.
        **options: the rule's, by group; ``lr`` among them.
    """

    #: Options that would have to change a row without a gradient: required to be 0 for those.
    dense_only: Dict[str, str] = {}

    # Whether the rule treats every number alike, as fairseq's flattening of --fp16 needs.
    supports_flat_params = True
    # What fairseq's --memory-efficient-fp16 asks for: float32 masters are kept here, and a state
    # that is loaded keeps its precision.
    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True
    #: Parameters whose state was loaded, and is not used yet. Here, for what is unpickled.
    _loaded: FrozenSet[Tensor] = frozenset()

    def __init__(self, parameters: Iterable, **options: Any):
        super().__init__(parameters, options)

    @property
    def supports_step_with_scale(self) -> bool:
        """Whether fairseq leaves it to :meth:`step` to divide gradients, as it does of halves.

        They are divided by the loss scale and by the number of words in the master's precision: the
        smallest of them would be lost in their own. Where the masters are fairseq's (--bf16), it
        has to divide them itself: it never resets the factor that it would hand on.
        """
        return any(p.dtype in HALVES for group in self.param_groups for p in group["params"])

    def accumulators(self, value: Tensor, group: Dict[str, Any]) -> Tensors:
        """The accumulators of a parameter at its first update, one entry or row for a row: zero."""
        return {name: torch.zeros_like(value) for name in self.needed(group)}

    def needed(self, group: Dict[str, Any]) -> Sequence[str]:
        """The names of the accumulators that the options ask for."""
        return ()

    def rule(self, part: Tensors, gradient: Tensor, step: int, group: Dict[str, Any]) -> None:
        """Update ``part["value"]`` and the accumulators beside it, in place.

        Args:
            part: rows (U, ...) of the value and of each accumulator.
            gradient: (U, ...), in the value's precision.
            step: how many updates this parameter has had, this one included.
            group: the options.
        """
        raise NotImplementedError

    @torch.no_grad()
    def step(
        self, closure: Optional[Callable[[], Any]] = None, scale: Union[float, Tensor] = 1.0
    ) -> Any:
        """One update of every parameter that has a gradient.

        Args:
            closure: as torch.optim has it.
            scale: what the gradients are divided by, in place.

        Raises:
            ValueError: for an option that row-sparse gradients can't follow.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group, scale)
        return loss

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """As torch's, which casts accumulators to the parameter's dtype; they keep theirs here."""
        super().load_state_dict(state_dict)
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        here = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(saved, here):
            for name, value in state_dict["state"].get(number, {}).items():
                on_device = value.to(parameter.device) if torch.is_tensor(value) else value
                self.state[parameter][name] = on_device
            self._loaded |= {parameter}

    def _update(
        self,
        parameter: Tensor,
        gradient: Tensor,
        group: Dict[str, Any],
        scale: Union[float, Tensor],
    ) -> None:
        state = self.state[parameter]
        if parameter in self._loaded:
            self._loaded -= {parameter}
            _reconcile(state, parameter)
        if not self._is_complete(state, parameter, group):
            for name, value in self._start(parameter, group).items():
                state.setdefault(name, value)
        state["step"] += 1
        whole = {"value": parameter.data, **state}  # a master in the state takes the first's place
        del whole["step"]
        if gradient.is_sparse:
            self._check_sparse(group)
            merged = row_sparse.merge(gradient)
            rows = _divided(merged._values(), whole["value"], scale)
            self._update_rows(whole, merged._indices()[0], rows, state["step"], group, parameter)
        else:
            gradient = _divided(gradient, whole["value"], scale)
            self.rule(whole, gradient, state["step"], group)
            if "value" in state:
                parameter.data.copy_(whole["value"])

    def _update_rows(
        self,
        whole: Dict[str, Tensor],
        ids: Tensor,
        rows: Tensor,
        step: int,
        group: Dict[str, Any],
        parameter: Tensor,
    ) -> None:
        part = {name: value.index_select(0, ids) for name, value in whole.items()}
        self.rule(part, rows, step, group)
        for name, value in part.items():
            whole[name].index_copy_(0, ids, value)
        if "value" in self.state[parameter]:
            parameter.data.index_copy_(0, ids, part["value"].to(parameter.dtype))

    def _is_complete(self, state: Dict[str, Any], parameter: Tensor, group: Dict[str, Any]) -> bool:
        """Not at first, nor after loading a state of other options or of another precision."""
        names = ["step", *self.needed(group)]
        names += [] if parameter.dtype == at_least_float32(parameter) else ["value"]
        return all(name in state for name in names)

    def _start(self, parameter: Tensor, group: Dict[str, Any]) -> Dict[str, Any]:
        exact = at_least_float32(parameter)
        master = {} if exact == parameter.dtype else {"value": parameter.detach().to(exact)}
        value = master.get("value", parameter.detach())
        return {"step": 0, **master, **self.accumulators(value, group)}

    def _check_sparse(self, group: Dict[str, Any]) -> None:
        for option, reason in self.dense_only.items():
            if group[option]:
                raise ValueError(
                    f"--{option.replace('_', '-')}: required 0 with --row-sparse, got "
                    f"{group[option]}: {reason}; if it is the checkpoint's: --reset-optimizer, or "
                    f"--optimizer-overrides \"{{'{option}': 0}}\""
                )


def _divided(gradient: Tensor, value: Tensor, scale: Union[float, Tensor]) -> Tensor:
    """In the value's precision."""
    gradient = gradient.to(value.dtype)
    if torch.is_tensor(scale):
        return gradient.div_(scale.to(gradient))
    return gradient if scale == 1.0 else gradient.div_(scale)


def _reconcile(state: Dict[str, Any], parameter: Tensor) -> None:
    """A loaded master stands where the parameter is what it was rounded to, and nowhere else.

    Weights may have been changed meanwhile, as by averaging checkpoints. At the first update, since
    a state may be loaded before the weights are. A parameter that needs no master takes it over.
    """
    if "value" not in state:
        return
    master = state["value"]
    halves = [parameter.dtype] if parameter.dtype in HALVES else HALVES
    is_own = torch.zeros_like(parameter, dtype=torch.bool)
    for half in halves:
        is_own |= master.to(half).to(parameter.dtype) == parameter
    state["value"] = torch.where(is_own, master, parameter.detach().to(master.dtype))
    if parameter.dtype == at_least_float32(parameter):
        parameter.data.copy_(state.pop("value"))


_DECAY = "it would shrink every row at every update, also those that the batch does not touch"
_MOMENTUM = "it would go on moving every row after the last batch that touched it"


class SparseSGD(RowSparseOptimizer):
    """p -= lr g: the same as dense SGD.

    With momentum (dense gradients alone) v = momentum v + g, p -= lr v, as torch.optim.SGD.
    """

    dense_only = {"momentum": _MOMENTUM, "weight_decay": _DECAY}

    def __init__(
        self, parameters: Iterable, lr: float, momentum: float = 0.0, weight_decay: float = 0.0
    ):
        super().__init__(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)

    def needed(self, group: Dict[str, Any]) -> Sequence[str]:
        return ["velocity"] if group["momentum"] else []

    def rule(self, part: Tensors, gradient: Tensor, step: int, group: Dict[str, Any]) -> None:
        gradient = _decayed(part["value"], gradient, group)
        if group["momentum"]:
            gradient = part["velocity"].mul_(group["momentum"]).add_(gradient)
        part["value"].add_(gradient, alpha=-group["lr"])


class SparseAdagrad(RowSparseOptimizer):
    """s += g^2; p -= lr g / (sqrt(s) + eps): the same as dense Adagrad (Duchi et al. 2011)."""

    dense_only = {"weight_decay": _DECAY}

    def __init__(
        self,
        parameters: Iterable,
        lr: float,
        eps: float = 1e-10,
        initial_accumulator: float = 0.0,
        weight_decay: float = 0.0,
    ):
        super().__init__(
            parameters,
            lr=lr,
            eps=eps,
            initial_accumulator=initial_accumulator,
            weight_decay=weight_decay,
        )

    def accumulators(self, value: Tensor, group: Dict[str, Any]) -> Tensors:
        return {"sum": torch.full_like(value, group["initial_accumulator"])}

    def needed(self, group: Dict[str, Any]) -> Sequence[str]:
        return ["sum"]

    def rule(self, part: Tensors, gradient: Tensor, step: int, group: Dict[str, Any]) -> None:
        gradient = _decayed(part["value"], gradient, group)
        total = part["sum"].add_(self.squares(gradient))
        part["value"].addcdiv_(gradient, total.sqrt().add_(group["eps"]), value=-group["lr"])

    def squares(self, gradient: Tensor) -> Tensor:
        """What a gradient adds to the accumulator."""
        return gradient.square()


class RowwiseAdagrad(SparseAdagrad):
    """Adagrad with one accumulator a row, s += mean(g^2): V floats of state for (V, D) values.

    A vector's entries count as rows, a number is one. The accumulator is that of the embedding
    tables of Mudigere et al. 2022, "Software-hardware co-design for fast and scalable training of
    deep learning recommendation models".
    """

    supports_flat_params = False

    def accumulators(self, value: Tensor, group: Dict[str, Any]) -> Tensors:
        shape = [*value.shape[:1], *[1] * (value.dim() - 1)]  # a number's is ()
        return {"sum": value.new_full(shape, group["initial_accumulator"])}

    def squares(self, gradient: Tensor) -> Tensor:
        within_row = list(range(1, gradient.dim()))
        return gradient.square().mean(within_row, keepdim=True) if within_row else gradient**2


class LazyAdam(RowSparseOptimizer):
    """Adam (Kingma & Ba 2015) in the rows that have a gradient; decoupled weight decay.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
    p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), as fairseq's Adam, for dense gradients
    the same. Lazy for row-sparse ones: m and v of an untouched row stand still and the row does
    not move, where Adam's would decay and go on moving it; t counts all updates.
    """

    dense_only = {"weight_decay": _DECAY}

    def __init__(
        self,
        parameters: Iterable,
        lr: float,
        betas: "tuple[float, float]" = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(parameters, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)

    def needed(self, group: Dict[str, Any]) -> Sequence[str]:
        return ["mean", "square"]

    def rule(self, part: Tensors, gradient: Tensor, step: int, group: Dict[str, Any]) -> None:
        first, second = group["betas"]
        part["mean"].mul_(first).add_(gradient, alpha=1 - first)
        part["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        rate = group["lr"] * math.sqrt(1 - second**step) / (1 - first**step)
        if group["weight_decay"]:
            part["value"].mul_(1 - group["lr"] * group["weight_decay"])
        divisor = part["square"].sqrt().add_(group["eps"])
        part["value"].addcdiv_(part["mean"], divisor, value=-rate)


def _decayed(value: Tensor, gradient: Tensor, group: Dict[str, Any]) -> Tensor:
    """The gradient with that of an L2 penalty on the values."""
    decay: float = group["weight_decay"]
    return gradient.add(value, alpha=decay) if decay else gradient
