"""What is measured: ways to do the output layer, and the recipes that they are trained with."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, replace
from typing import Dict, List, Optional, Tuple

from experiments.recipes import ADAPTIVE, SOFTMAX, criterion_flags

_SPARSE = "_sparse"
_OWN = ("bnce", "shared_nce")


@dataclass(frozen=True)
class System:
    """One way to do the output layer.

    Attributes:
        name: what ``--systems`` calls it.
        criterion: fairseq's name for it; None where there is none, so that it has no training
            and is measured as a bare output layer alone.
        torch: the first version that has it.
    """

    name: str
    criterion: Optional[str]
    torch: Tuple[int, int] = (1, 13)

    @property
    def is_row_sparse(self) -> bool:
        return self.name.endswith(_SPARSE)

    @property
    def dense(self) -> Optional[str]:
        """The name of the system that differs in its dense gradients alone."""
        return self.name[: -len(_SPARSE)] if self.is_row_sparse else None

    @property
    def is_own(self) -> bool:
        """Whether it is this plugin's code, and not torch's or fairseq's."""
        return self.criterion in _OWN


SYSTEMS: Dict[str, System] = {
    system.name: system
    for system in (
        System(SOFTMAX, SOFTMAX),
        System(ADAPTIVE, ADAPTIVE),
        System("linear_cross_entropy", None, torch=(2, 13)),
        System("bnce", "bnce"),
        System("bnce_sparse", "bnce"),
        System("shared_nce", "shared_nce"),
        System("shared_nce_sparse", "shared_nce"),
    )
}


@dataclass(frozen=True)
class Recipe:
    """A model and a batch.

    Attributes:
        name: what ``--recipe`` calls it.
        about: one line for the report.
        training: flags of fairseq-train, those of the batch and the optimiser left out.
        optimizers: of the dense systems and of the row-sparse ones.
        features: D, the size of what goes into the output projection.
        batch: (sentences, tokens each).
        has_bias: of the output projection.
    """

    name: str
    about: str
    training: Tuple[str, ...]
    optimizers: Tuple[str, str]
    features: int
    batch: Tuple[int, int]
    has_bias: bool

    @property
    def targets(self) -> int:
        """Target tokens of a batch."""
        return self.batch[0] * self.batch[1]

    def with_sentences(self, count: Optional[int]) -> Recipe:
        """The same with so many sentences a batch; as it is with None."""
        return self if count is None else replace(self, batch=(count, self.batch[1]))


def _lstm(size: int) -> Recipe:
    flags = f"""
    --arch lstm_lm --decoder-layers 2 --dropout 0
    --decoder-embed-dim {size} --decoder-hidden-size {size} --decoder-out-embed-dim {size}
    --lr 1 --clip-norm 0.25
    """
    about, optimizers = f"LSTM 2 x {size}, no dropout, SGD", ("sgd", "sparse_sgd")
    return Recipe(f"lstm{size}", about, _words(flags), optimizers, size, (20, 20), True)


def _fused(size: int) -> Recipe:
    """The same layers in one call of torch.nn.LSTM; this project's, so no adaptive softmax."""
    flags = f"""
    --arch rnn_lm --decoder-layers 2 --dropout 0 --decoder-embed-dim {size} --lr 1 --clip-norm 0.25
    """
    about, optimizers = f"fused LSTM 2 x {size}, no dropout, SGD", ("sgd", "sparse_sgd")
    return Recipe(f"rnn{size}", about, _words(flags), optimizers, size, (20, 20), True)


def _transformer() -> Recipe:
    flags = """
    --arch transformer_lm --decoder-layers 6 --decoder-embed-dim 512 --decoder-ffn-embed-dim 2048
    --decoder-attention-heads 8 --dropout 0.1 --lr 0.0001 --clip-norm 0.25
    """
    about, optimizers = "transformer 6 x 512, untied, Adam", ("adam", "lazy_adam")
    return Recipe("transformer", about, _words(flags), optimizers, 512, (16, 256), False)


def _words(flags: str) -> Tuple[str, ...]:
    return tuple(shlex.split(flags))


RECIPES: Dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (_lstm(200), _lstm(1024), _fused(200), _fused(1024), _transformer())
}


def recipe_flags(recipe: Recipe) -> List[str]:
    """The model and the batch, as flags of fairseq-train."""
    sentences, tokens = recipe.batch
    batch = ["--batch-size", str(sentences), "--tokens-per-sample", str(tokens)]
    return [*recipe.training, *batch]


def own_flags(system: System, recipe: Recipe, vocab: int) -> List[str]:
    """What of fairseq-train's flags differs between systems; none for one without a criterion."""
    if system.criterion is None:
        return []
    optimizer = recipe.optimizers[system.is_row_sparse]
    flags = ["--criterion", system.criterion, "--optimizer", optimizer]
    if system.is_row_sparse:
        flags.append("--row-sparse")
    if system.is_own and not recipe.has_bias:
        flags += ["--log-z", f"{math.log(vocab):.1f}"]  # where such a model starts
    return [*flags, *criterion_flags(system.criterion, vocab)]
