#!/usr/bin/env python3
"""Give a checkpoint another output layer, so that another criterion can go on with the rest.

    migrate_checkpoint.py adaptive/checkpoint_best.pt --out start.pt -- \\
        DATA --user-dir fairseq_bnce --arch lstm_lm ... --criterion bnce
    fairseq-train DATA (the same) --finetune-from-model start.pt --save-dir bnce

After the lone ``--`` stands the command line of the training that is to go on. The model that it
would begin with is built, all parameters that the checkpoint has by the same name are put into it,
and what was not kept is said. fairseq alone refuses: it loads all parameters or none.

From an adaptive softmax to a plain projection more can be kept: a word's row becomes its row in the
head, or the product of its cluster's two matrices plus the cluster's row in the head, and the bias
takes off the mean log-normalisers of head and cluster, measured on validation data, so that log Z
is 0 on average. What is lost is how they vary with the context; and, in a transformer, one feature,
which is made constant and stands for the bias. Where there is neither, or from a plain projection
to an adaptive softmax, the output layer is a new one.

Between criteria whose models have the same parameters (cross_entropy, bnce, ...) none of this is
needed: fairseq-train's own --finetune-from-model, or --restore-file with --reset-optimizer
--reset-lr-scheduler --reset-meters --reset-dataloader.
"""

from __future__ import annotations

if __name__ == "__main__":
    import environment

    environment.enter()

import argparse
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from experiments.command import HelpFormatter, UsageError, positive, split, start, status
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import BaseFairseqModel
from fairseq.modules import AdaptiveSoftmax
from omegaconf import OmegaConf
from torch import Tensor

from fairseq_bnce import register
from fairseq_bnce.checkpoints import dictionaries
from fairseq_bnce.errors import CheckpointError, InputError, UnsupportedModelError
from fairseq_bnce.losses import log_partition
from fairseq_bnce.output_layer import initial_scores
from fairseq_bnce.output_layer.layer import OutputLayer

Batch = Dict[str, Any]  # of fairseq's


class Normalisers(NamedTuple):
    """Mean log-normalisers of an adaptive softmax, nats.

    Attributes:
        head: of all contexts.
        tails: (clusters,), of the contexts weighted by the cluster's probability.
    """

    head: Tensor
    tails: Tensor


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0, or 2 for what can't be done."""
    own, training = split(arguments)
    parser = _parser()
    chosen = parser.parse_args(own)
    if not training:
        parser.error(
            "--: required the flags of the fairseq-train that is to go on, got none behind it"
        )
    return status(lambda: _migrate(chosen, training))


def _migrate(chosen: argparse.Namespace, training: Sequence[str]) -> int:
    try:
        for line in migrate(chosen, training):
            print(line)
    except (CheckpointError, InputError) as error:
        raise UsageError(str(error)) from None
    return 0


def migrate(chosen: argparse.Namespace, training: Sequence[str]) -> Iterator[str]:
    """Write the new checkpoint; yields what was kept and what was not.

    Raises:
        UsageError: if there is no checkpoint, or one of another size.
        CheckpointError: if it can't be read.
        InputError: if the data have other words.
    """
    register()  # which reads a checkpoint without running what is in it
    cfg, task, model = _new_model(training)
    old = _read(chosen.checkpoint, task)
    kept, new = _put(old["model"], model)
    yield f"kept: {len(kept)} parameters and buffers of {len(old['model'])}"
    layer = _plain_layer(model, new, old["model"])
    if layer is not None:
        adaptive = _adaptive_model(chosen.checkpoint, cfg.task.data)
        batches = list(islice(_batches(task, model), chosen.batches))
        _put_folded(adaptive, model, layer, batches)
        yield f"made of the adaptive softmax: {', '.join(sorted(new))}"
    elif new:
        yield f"new, as at the start of a training: {', '.join(sorted(new))}"
    lost = sorted(set(old["model"]) - set(kept))
    if lost:
        yield f"left out: {', '.join(lost)}"
    plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)  # as fairseq saves it
    state: Dict[str, Any] = {dictionaries.WORDS: dictionaries.checksum(task.source_dictionary)}
    if layer is not None:
        state["log_z"] = 0.0  # the bias has taken it off
    old.update(model=model.state_dict(), cfg=plain, args=None, task_state=state)
    old.pop("last_optimizer_state", None)  # of other parameters
    checkpoint_utils.torch_persistent_save(old, str(chosen.out))
    yield f"{chosen.out}: for fairseq-train --finetune-from-model, with the same flags"


@torch.no_grad()
def folded(softmax: AdaptiveSoftmax, means: Normalisers) -> Tuple[Tensor, Tensor]:
    """A plain projection as near to an adaptive softmax as it comes: weight (V, D), bias (V,).

    Args:
        softmax: of features (D,).
        means: what the bias takes off.
    """
    identity = torch.eye(softmax.input_dim)
    head = softmax.head(identity).t()
    first = softmax.cutoff[0]
    rows, offsets = [head[:first]], [means.head.expand(first)]
    for place, tail in enumerate(softmax.tail):
        rows.append(tail(identity).t() + head[first + place])
        offsets.append((means.head + means.tails[place]).expand(len(rows[-1])))
    return torch.cat(rows), -torch.cat(offsets)


@torch.no_grad()
def _put_folded(
    adaptive: BaseFairseqModel,
    model: BaseFairseqModel,
    layer: OutputLayer,
    batches: Sequence[Batch],
) -> None:
    """Into the new model's layer; then its mean log Z is measured and taken off, too."""
    weight, bias = folded(adaptive.decoder.adaptive_softmax, _means(adaptive, batches))
    layer.full().weight.copy_(weight)
    initial_scores.set_to(layer, bias)
    initial_scores.set_to(layer, bias - _mean_log_z(model.eval(), layer, batches))


def _mean_log_z(model: BaseFairseqModel, layer: OutputLayer, batches: Sequence[Batch]) -> float:
    """Nats, of the contexts of the batches."""
    found = []
    for sample in batches:
        is_word = sample["target"].ne(model.decoder.dictionary.pad())
        features = layer.features(model, sample["net_input"])[is_word]
        found.append(log_partition(features, *layer.full()))
    return torch.cat(found).mean().item()


@torch.no_grad()
def _means(model: BaseFairseqModel, batches: Sequence[Batch]) -> Normalisers:
    softmax = model.decoder.adaptive_softmax
    sums = torch.zeros(2, 1 + len(softmax.tail))  # weights, and weighted log-normalisers
    for sample in batches:
        features = model(**sample["net_input"])[0]
        features = features[sample["target"].ne(model.decoder.dictionary.pad())]
        scores = softmax.head(features)
        clusters = scores.softmax(1)[:, softmax.cutoff[0] :]
        weights = torch.cat([torch.ones(len(features), 1), clusters], 1)
        found = [scores.logsumexp(1), *(tail(features).logsumexp(1) for tail in softmax.tail)]
        sums += torch.stack([weights.sum(0), (weights * torch.stack(found, 1)).sum(0)])
    means = sums[1] / sums[0]
    return Normalisers(means[0], means[1:])


def _new_model(training: Sequence[str]) -> Tuple[Any, Any, BaseFairseqModel]:
    """(configuration, task, model) as fairseq-train begins with them."""
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, list(training)))
    utils.import_user_module(cfg.common)
    torch.manual_seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)  # which has a say in how the output bias begins
    return cfg, task, model


def _read(path: Path, task: Any) -> Dict[str, Any]:
    """A checkpoint whose rows are those of the task's words, if it tells them."""
    if not path.is_file():
        raise UsageError(f"{path}: required a checkpoint of fairseq-train, got no such file")
    content = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    words = (content.get("task_state") or {}).get(dictionaries.WORDS)
    if words is not None:
        dictionaries.check_same(task.source_dictionary, words, str(path))
    return content


def _put(old: Dict[str, Tensor], model: BaseFairseqModel) -> Tuple[List[str], List[str]]:
    """(names that were kept, names of the model that the checkpoint has nothing for)."""
    state = model.state_dict()
    kept = [name for name in state if name in old]
    for name in kept:
        wanted, got = tuple(state[name].shape), tuple(old[name].shape)
        if wanted != got:
            raise UsageError(f"{name}: required shape {wanted} by the new flags, got {got}")
    model.load_state_dict({**state, **{name: old[name] for name in kept}})
    return kept, [name for name in state if name not in old]


def _plain_layer(
    model: BaseFairseqModel, new: Sequence[str], old: Dict[str, Tensor]
) -> Optional[OutputLayer]:
    """The new model's, if nothing else of it is new and scores can be put into it.

    None as well if the old one has no adaptive softmax.
    """
    if "decoder.adaptive_softmax.version" not in old:
        return None
    try:
        layer = OutputLayer(model)
    except UnsupportedModelError:  # for one, an adaptive softmax again
        return None
    is_all = len(layer.parameters()) == len(new)
    return layer if is_all and initial_scores.can_be_set(layer) else None


def _adaptive_model(path: Path, data: str) -> BaseFairseqModel:
    overrides = {"data": data}
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides=overrides)
    return model.eval()


def _batches(task: Any, model: BaseFairseqModel) -> Iterator[Batch]:
    task.load_dataset("valid")
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    batches = task.get_batch_iterator(
        task.dataset("valid"), max_sentences=8, max_positions=longest, num_workers=0
    )
    return batches.next_epoch_itr(shuffle=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    add = parser.add_argument
    add("checkpoint", type=Path, help="of fairseq-train")
    add("--out", type=Path, required=True, help="the new checkpoint")
    add(
        "--batches",
        type=positive,
        default=50,
        help="of 8 blocks, that the normalisers are measured on (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    start(main)
