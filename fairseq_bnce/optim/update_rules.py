"""Update rules that touch the rows that have a gradient, and no others (torch.optim, no fairseq).

Each rule is one in-place function of lists: the values, accumulators and gradients of several
parameters. An entry is a whole parameter for a dense gradient, or the touched rows for a row-sparse
one. Parameters in half precision keep a float32 master: the rule updates the master, and the
parameter is the master rounded.
"""

import math
from itertools import chain
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Union

import torch
from torch import Tensor

from fairseq_bnce.errors import require
from fairseq_bnce.losses.words import HALVES
from fairseq_bnce.optim import row_sparse

Options = Dict[str, Any]
State = Dict[str, Any]  # of a parameter: how many updates it has had, and its accumulators
TensorLists = Dict[str, List[Tensor]]
Scale = Union[float, Tensor]

# Numbers that a GPU updates together: few launches keep it busy. On a CPU, whose cache holds
# little, parameters are updated one by one.
_NUMBERS_AT_ONCE = 2**25


class RowSparseOptimizer(torch.optim.Optimizer):
    """The base of all rules; a subclass defines :meth:`rule` and its accumulators.

    Args:
        parameters: as torch.optim takes them.
        lr: the learning rate.
        **options: their values, where they differ from :attr:`options`.

    Raises:
        ValueError: for other options, one below 0, and betas that are not below 1.

    Attributes:
        options: the rule's options and their defaults, ``lr`` aside.
        own_accumulators: the names of its accumulators.
    """

    options: Options = {}
    own_accumulators: Sequence[str] = ()
    # Options that would have to change rows without a gradient, at every update: required to be 0
    # with row-sparse gradients.
    dense_only: Sequence[str] = ("weight_decay",)

    # Whether the rule treats every number alike, as fairseq's flattening of --fp16 needs.
    supports_flat_params = True
    # For fairseq's --memory-efficient-fp16: float32 masters are kept here, and a state that is
    # loaded keeps its precision.
    supports_memory_efficient_fp16 = True
    disable_mem_eff_fp16_loading_hack = True

    def __init__(self, parameters: Iterable, lr: float, **options: Any):
        required = f"some of {', '.join(self.options)}"
        require("options", required, [*options], options.keys() <= self.options.keys())
        values = {"lr": lr, **self.options, **options}
        for name, value in values.items():
            limit = 1 if name == "betas" else math.inf
            fits = all(0 <= number < limit for number in (value if limit == 1 else [value]))
            require(name, f"at least 0 and below {limit}", value, fits)
        super().__init__(parameters, values)
        self._loaded: Set[Tensor] = set()  # parameters whose state was loaded and is not used yet
        # Whether step() divides gradients, as it does for halves; otherwise fairseq does. Halves
        # are divided by the loss scale and by the number of words in the master's precision: the
        # smallest of them would be lost in their own. Where the masters are fairseq's (--bf16),
        # fairseq has to divide: it never resets the factor that it would hand on.
        parameters = chain.from_iterable(group["params"] for group in self.param_groups)
        self.supports_step_with_scale = any(p.dtype in HALVES for p in parameters)

    def accumulators(self, group: Options) -> Sequence[str]:
        """Return the names of the accumulators that the options ask for."""
        return self.own_accumulators

    def initial(self, value: Tensor, group: Options) -> Tensor:
        """Return an accumulator before the first update: an entry or row for each row."""
        return torch.zeros_like(value)

    def rule(self, parts: TensorLists, gradients: List[Tensor], step: int, group: Options) -> None:
        """Update ``parts["value"]`` and the accumulators beside it, in place.

        Args:
            parts: the value, or its rows (U, ...), and each accumulator, of several parameters.
            gradients: of the same shapes, in the value's precision.
            step: how many updates these parameters have had, this one included.
            group: the options.
        """
        raise NotImplementedError

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], float]] = None, scale: Scale = 1.0) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: as torch.optim has it.
            scale: what the gradients are divided by, in place.

        Raises:
            ValueError: for an option that row-sparse gradients can't follow.
        """
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            waiting: List[_Part] = []  # to be updated together
            kind: object = None
            numbers = 0  # how many the waiting parts have
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse:
                    self._check_for_rows(group)
                part = _Part(parameter, self._state(parameter, group), scale)
                value, before, size = part.tensors["value"], kind, part.gradient.numel()
                kind, numbers = (part.step, value.device, value.dtype), numbers + size
                if not value.is_cuda or kind != before or numbers > _NUMBERS_AT_ONCE:
                    self._update(waiting, group)
                    waiting, numbers = [], size
                waiting.append(part)
            self._update(waiting, group)
        return loss

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Load as torch does, but keep the precision of accumulators, which torch casts."""
        super().load_state_dict(state_dict)
        saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        own = chain.from_iterable(group["params"] for group in self.param_groups)
        for number, parameter in zip(saved, own):
            for name, value in state_dict["state"].get(number, {}).items():
                on_device = value.to(parameter.device) if torch.is_tensor(value) else value
                self.state[parameter][name] = on_device
            self._loaded.add(parameter)

    def _update(self, parts: List["_Part"], group: Options) -> None:
        if not parts:
            return
        names = ["value", *self.accumulators(group)]
        tensors = {name: [part.tensors[name] for part in parts] for name in names}
        self.rule(tensors, [part.gradient for part in parts], parts[0].step, group)
        for part in parts:
            part.write()

    def _check_for_rows(self, group: Options) -> None:
        for option in filter(group.get, self.dense_only):
            advice = "if a checkpoint set it, pass --reset-optimizer or --optimizer-overrides"
            required = f"0 with --row-sparse ({advice})"
            require(f"--{option.replace('_', '-')}", required, group[option], False)

    def _state(self, parameter: Tensor, group: Options) -> State:
        """Return the parameter's state, completed for this update."""
        state = self.state[parameter]
        if parameter in self._loaded:
            self._loaded.remove(parameter)
            _follow_weights(state, parameter)
        if parameter.dtype in HALVES and "value" not in state:
            state["value"] = parameter.detach().float()
        for name in self.accumulators(group):
            if name not in state:
                state[name] = self.initial(state.get("value", parameter.detach()), group)
        state["step"] = state.get("step", 0) + 1
        return state


class _Part:
    """The part of a parameter that one update changes: all of it, or the rows with a gradient.

    Attributes:
        tensors: the value and its accumulators, whole or by rows.
        gradient: of the value's shape and dtype.
        step: how many updates the parameter has had, this one included.
    """

    def __init__(self, parameter: Tensor, state: State, scale: Scale):
        self._parameter = parameter
        gradient: Any = parameter.grad
        self._whole = {"value": parameter.data, **state}  # a master replaces the parameter
        self.step: int = self._whole.pop("step")
        self.tensors, self._ids = self._whole, None
        if gradient.is_sparse:
            merged = row_sparse.merge(gradient)
            self._ids, gradient = merged._indices()[0], merged._values()
            self.tensors = {n: whole.index_select(0, self._ids) for n, whole in self._whole.items()}
        self.gradient = gradient.to(self.tensors["value"].dtype)
        if torch.is_tensor(scale) or scale != 1:
            self.gradient.div_(scale)

    def write(self) -> None:
        """Write updated copies back to the parameter and its state."""
        value, data = self.tensors["value"], self._parameter.data
        if self._ids is None:
            if value.dtype != data.dtype:
                data.copy_(value)
            return
        for name, rows in self.tensors.items():
            self._whole[name].index_copy_(0, self._ids, rows)
        if value.dtype != data.dtype:
            data.index_copy_(0, self._ids, value.to(data.dtype))


def _follow_weights(state: State, parameter: Tensor) -> None:
    """Drop a loaded master where the parameter is not what the master was rounded to.

    Weights may have changed meanwhile, for example by averaging checkpoints. Called at the first
    update, since a state may be loaded before the weights are.
    """
    master = state.pop("value", None)
    if master is not None and parameter.dtype in HALVES:
        is_own = master.to(parameter.dtype) == parameter
        state["value"] = torch.where(is_own, master, parameter.detach().to(master.dtype))


def _with_l2_penalty(gradients: List[Tensor], parts: TensorLists, group: Options) -> List[Tensor]:
    """Add the gradients of the penalty, weight_decay / 2 times the values' squares."""
    if not group["weight_decay"]:
        return gradients
    return list(torch._foreach_add(gradients, parts["value"], alpha=group["weight_decay"]))


class SparseSGD(RowSparseOptimizer):
    """p -= lr g: the same as dense SGD.

    With momentum (dense gradients alone) v = momentum v + g, p -= lr v, as torch.optim.SGD.
    """

    options = {"momentum": 0.0, "weight_decay": 0.0}
    dense_only = ("momentum", "weight_decay")

    def accumulators(self, group: Options) -> Sequence[str]:
        return ["velocity"] if group["momentum"] else []

    def rule(self, parts: TensorLists, gradients: List[Tensor], step: int, group: Options) -> None:
        gradients = _with_l2_penalty(gradients, parts, group)
        if group["momentum"]:
            torch._foreach_mul_(parts["velocity"], group["momentum"])
            torch._foreach_add_(parts["velocity"], gradients)
            gradients = parts["velocity"]
        torch._foreach_add_(parts["value"], gradients, alpha=-group["lr"])


class SparseAdagrad(RowSparseOptimizer):
    """s += g^2; p -= lr g / (sqrt(s) + eps): the same as dense Adagrad (Duchi et al. 2011)."""

    options = {"eps": 1e-10, "initial_accumulator": 0.0, "weight_decay": 0.0}
    own_accumulators = ("sum",)

    def initial(self, value: Tensor, group: Options) -> Tensor:
        return torch.full_like(value, group["initial_accumulator"])

    def rule(self, parts: TensorLists, gradients: List[Tensor], step: int, group: Options) -> None:
        gradients = _with_l2_penalty(gradients, parts, group)
        torch._foreach_add_(parts["sum"], self.squares(gradients))
        divisors = torch._foreach_sqrt(parts["sum"])
        torch._foreach_add_(divisors, group["eps"])
        torch._foreach_addcdiv_(parts["value"], gradients, divisors, -group["lr"])

    def squares(self, gradients: List[Tensor]) -> List[Tensor]:
        """Return the terms that gradients add to the accumulators."""
        return list(torch._foreach_mul(gradients, gradients))


class RowwiseAdagrad(SparseAdagrad):
    """Adagrad with one accumulator a row, s += mean(g^2): V floats of state for (V, D) values.

    A vector's entries count as rows, a number is one. The accumulator is that of the embedding
    tables of Mudigere et al. 2022, "Software-hardware co-design for fast and scalable training of
    deep learning recommendation models".
    """

    supports_flat_params = False

    def initial(self, value: Tensor, group: Options) -> Tensor:
        shape = [*value.shape[:1], *[1] * (value.dim() - 1)]  # the shape of a number is ()
        return value.new_full(shape, group["initial_accumulator"])

    def squares(self, gradients: List[Tensor]) -> List[Tensor]:
        return [
            g.square().mean(list(range(1, g.dim())), keepdim=True) if g.dim() > 1 else g.square()
            for g in gradients
        ]


class LazyAdam(RowSparseOptimizer):
    """Adam (Kingma & Ba 2015) in the rows that have a gradient; decoupled weight decay.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
    p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps), as fairseq's Adam, for dense gradients
    the same. Lazy for row-sparse ones: m and v of an untouched row stand still and the row does
    not move, where Adam's would decay and go on moving it; t counts all updates.
    """

    options = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}
    own_accumulators = ("mean", "square")

    def rule(self, parts: TensorLists, gradients: List[Tensor], step: int, group: Options) -> None:
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
