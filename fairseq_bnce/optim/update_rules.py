"""Update rules that touch the rows that have a gradient, and no others (torch.optim, no fairseq).

Each rule is one in-place function of lists: the values, accumulators and gradients of several
parameters. An entry is a whole parameter for a dense gradient, or the touched rows for a row-sparse
one. Parameters in half precision keep a float32 master, to which the rule is applied, and which is
rounded to them.
"""

import math
from functools import partial
from itertools import chain
from typing import (
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Union,
)

import torch
from torch import Tensor

from fairseq_bnce.losses.precision import HALVES, at_least_float32
from fairseq_bnce.optim import row_sparse

Tensors = Dict[str, Tensor]
TensorLists = Dict[str, List[Tensor]]

# Numbers that are updated together: a GPU is kept busy by few launches, a CPU's cache holds little.
_NUMBERS_AT_ONCE = {"cpu": 1, "gpu": 2**25}


class _Part(NamedTuple):
    """What one update changes of a parameter.

    Attributes:
        tensors: the value and its accumulators, whole or by rows.
        gradient: of the value's shape and dtype.
        step: how many updates the parameter has had, this one included.
        write: puts back what is changed elsewhere than in place.
    """

    tensors: Tensors
    gradient: Tensor
    step: int
    write: Callable[[], None]


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

    def rule(
        self, parts: TensorLists, gradients: List[Tensor], step: int, group: Dict[str, Any]
    ) -> None:
        """Update ``parts["value"]`` and the accumulators beside it, in place.

        Args:
            parts: the value, or its rows (U, ...), and each accumulator, of several parameters.
            gradients: of the same shapes, in the value's precision.
            step: how many updates these parameters have had, this one included.
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
            waiting: List[_Part] = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                part = self._part(parameter, parameter.grad, group, scale)
                if waiting and not _fits(waiting, part):
                    self._update(waiting, group)
                    waiting = []
                waiting.append(part)
            self._update(waiting, group)
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

    def _update(self, parts: List[_Part], group: Dict[str, Any]) -> None:
        if not parts:
            return
        names = ["value", *self.needed(group)]
        tensors = {name: [part.tensors[name] for part in parts] for name in names}
        self.rule(tensors, [part.gradient for part in parts], parts[0].step, group)
        for part in parts:
            part.write()

    def _part(
        self,
        parameter: Tensor,
        gradient: Tensor,
        group: Dict[str, Any],
        scale: Union[float, Tensor],
    ) -> _Part:
        state = self.state[parameter]
        if parameter in self._loaded:
            self._loaded -= {parameter}
            _reconcile(state, parameter)
        if not self._is_complete(state, parameter, group):
            for name, value in self._start(parameter, group).items():
                state.setdefault(name, value)
        state["step"] += 1
        whole = {"value": parameter.data, **state}  # a master in the state takes the first's place
        step = whole.pop("step")
        has_master = "value" in state
        if not gradient.is_sparse:
            exact = _divided(gradient, whole["value"], scale)
            return _Part(whole, exact, step, partial(_write_whole, parameter, whole, has_master))
        self._check_sparse(group)
        merged = row_sparse.merge(gradient)
        ids = merged._indices()[0]
        rows = {name: value.index_select(0, ids) for name, value in whole.items()}
        exact = _divided(merged._values(), whole["value"], scale)
        write = partial(_write_rows, parameter, whole, rows, ids, has_master)
        return _Part(rows, exact, step, write)

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


def _fits(waiting: List[_Part], part: _Part) -> bool:
    """Whether a parameter can be updated together with those that wait."""
    value, first = part.tensors["value"], waiting[0].tensors["value"]
    if (part.step, value.device, value.dtype) != (waiting[0].step, first.device, first.dtype):
        return False
    numbers = sum(each.gradient.numel() for each in waiting) + part.gradient.numel()
    return numbers <= _NUMBERS_AT_ONCE["cpu" if value.device.type == "cpu" else "gpu"]


def _write_whole(parameter: Tensor, whole: Tensors, has_master: bool) -> None:
    if has_master:
        parameter.data.copy_(whole["value"])


def _write_rows(
    parameter: Tensor, whole: Tensors, rows: Tensors, ids: Tensor, has_master: bool
) -> None:
    for name, value in rows.items():
        whole[name].index_copy_(0, ids, value)
    if has_master:
        parameter.data.index_copy_(0, ids, rows["value"].to(parameter.dtype))


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

    def rule(
        self, parts: TensorLists, gradients: List[Tensor], step: int, group: Dict[str, Any]
    ) -> None:
        gradients = _decayed(parts["value"], gradients, group)
        if group["momentum"]:
            torch._foreach_mul_(parts["velocity"], group["momentum"])
            torch._foreach_add_(parts["velocity"], gradients)
            gradients = parts["velocity"]
        torch._foreach_add_(parts["value"], gradients, alpha=-group["lr"])


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

    def rule(
        self, parts: TensorLists, gradients: List[Tensor], step: int, group: Dict[str, Any]
    ) -> None:
        gradients = _decayed(parts["value"], gradients, group)
        torch._foreach_add_(parts["sum"], self.squares(gradients))
        divisors = torch._foreach_sqrt(parts["sum"])
        torch._foreach_add_(divisors, group["eps"])
        torch._foreach_addcdiv_(parts["value"], gradients, divisors, -group["lr"])

    def squares(self, gradients: List[Tensor]) -> List[Tensor]:
        """The terms that gradients add to the accumulators."""
        return list(torch._foreach_mul(gradients, gradients))


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

    def squares(self, gradients: List[Tensor]) -> List[Tensor]:
        return [_mean_square(gradient) for gradient in gradients]


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

    def rule(
        self, parts: TensorLists, gradients: List[Tensor], step: int, group: Dict[str, Any]
    ) -> None:
        first, second = group["betas"]
        torch._foreach_mul_(parts["mean"], first)
        torch._foreach_add_(parts["mean"], gradients, alpha=1 - first)
        torch._foreach_mul_(parts["square"], second)
        torch._foreach_addcmul_(parts["square"], gradients, gradients, 1 - second)
        rate = group["lr"] * math.sqrt(1 - second**step) / (1 - first**step)
        if group["weight_decay"]:
            torch._foreach_mul_(parts["value"], 1 - group["lr"] * group["weight_decay"])
        divisors = torch._foreach_sqrt(parts["square"])
        torch._foreach_add_(divisors, group["eps"])
        torch._foreach_addcdiv_(parts["value"], parts["mean"], divisors, -rate)


def _decayed(values: List[Tensor], gradients: List[Tensor], group: Dict[str, Any]) -> List[Tensor]:
    """The gradients with those of an L2 penalty on the values."""
    decay: float = group["weight_decay"]
    return list(torch._foreach_add(gradients, values, alpha=decay)) if decay else gradients


def _mean_square(gradient: Tensor) -> Tensor:
    """The mean square of each row (U, 1, ...); of a vector, each number's square."""
    within_row = list(range(1, gradient.dim()))
    return gradient.square().mean(within_row, keepdim=True) if within_row else gradient**2
