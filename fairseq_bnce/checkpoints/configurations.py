"""What fairseq would do with the strings of a checkpoint's configuration, and may not.

It evaluates some when it builds a model, opens files that others name, and omegaconf puts other
fields, or what a function of its returns, in the place of "${...}". All is settled before anything
is built: what is evaluated has to be a literal, no file is opened, since what is read from it are
initial values that the checkpoint's parameters replace, and "${...}" is the name of a field.

The configuration is fairseq's container of the year: a DictConfig, a dictionary, a Namespace of all
options, or one of the first two with Namespaces in it.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import re
from typing import Any, Iterator, List, Tuple

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from omegaconf import DictConfig, Node, OmegaConf

from fairseq_bnce.checkpoints.literals import NotALiteral, literal
from fairseq_bnce.errors import CheckpointError, quoted

# What fairseq's source hands to eval(), or did: a test finds these names there.
# fmt: off
EVALUATED = frozenset({
    "adafactor_eps", "adam_betas", "adamax_betas", "adaptive_input_cutoff",
    "adaptive_softmax_cutoff", "character_filters", "conv_aggregator_layers",
    "conv_feature_layers", "decoder_attention", "decoder_glu", "decoder_kernel_size_list",
    "decoder_layers", "downsample", "encoder_attention", "encoder_glu", "encoder_kernel_size_list",
    "encoder_layers", "feature_encoder_spec", "gated_attention", "lamb_betas", "left_pad_source",
    "left_pad_target", "override_encoder_layers", "pipeline_balance", "pipeline_decoder_balance",
    "pipeline_decoder_devices", "pipeline_devices", "pipeline_encoder_balance",
    "pipeline_encoder_devices", "pretrained", "project_input", "self_attention", "weight_softmax",
    "wer_args", "xformers_att_config",
})
# fmt: on
_MOST = 100_000  # of fields and what holds them; fairseq's own are some 600
_PART = re.compile(r"^(encoder|decoder)_")
# As checkpoints of before 2022 have it; in later ones fairseq has put all fields in their places.
_REFERENCE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")
_OPENED = re.compile(r".*_path|pretrained_.*|.*_checkpoint|load_.*_from")


def check_size(configuration: Any, path: str) -> None:
    """Refuse a configuration that grows without end, as where lists hold others twice.

    omegaconf, and so fairseq when it reads a checkpoint, copies a part for each place that it has,
    and for each "${...}" with its name.

    Raises:
        CheckpointError: for one of over 100,000 parts, or a "${...}" that is not the name of a
            field, or of one that refers to others in turn.
    """
    _checked_fields(configuration, path)


def _checked_fields(configuration: Any, path: str) -> List[Tuple[str, Any]]:
    """What :func:`_fields` has, of a configuration that does not grow."""
    fields = list(_fields(configuration, path))
    _check_references(fields, path)
    return fields


def _check_references(fields: List[Tuple[str, Any]], path: str) -> None:
    references = [(name, v) for name, v in fields if isinstance(v, str) and "${" in v]
    if not references:
        return
    sizes = collections.Counter(place for name, _ in fields for place in _places(name))
    referring = {place for name, _ in references for place in _places(name)}
    copied = 0
    for name, value in references:
        found = _REFERENCE.fullmatch(value)
        if found is None or found[1] not in sizes or found[1] in referring:
            raise CheckpointError(
                f"path {path}: {name}: required a value, or ${{...}} with the name of a field "
                f"that has one, got {quoted(value)}"
            )
        copied += sizes[found[1]]
    _check_count(copied, path)


def _places(name: str) -> List[str]:
    """A field's dotted name, and those of all that it is in."""
    return list(itertools.accumulate(name.replace("[]", "").split("."), "{}.{}".format))


def check(configuration: Any, path: str) -> None:
    """Make sure that nothing in a configuration is a program.

    Args:
        configuration: in any of fairseq's containers; None is one that is not there.
        path: of the checkpoint, for the message.

    Raises:
        CheckpointError: naming a field that fairseq evaluates and that is no literal, or for what
            :func:`check_size` refuses.
    """
    for name, value in _checked_fields(configuration, path):
        if _is_evaluated(name) and isinstance(value, (str, bytes, bytearray)):
            try:
                literal(value)
            except NotALiteral as error:
                raise not_a_literal(path, name, error) from None


def not_a_literal(path: str, name: str, error: NotALiteral) -> CheckpointError:
    """For a field (its dotted name, or that of several) that was to be evaluated."""
    return CheckpointError(
        f"path {path}: {name}: required a literal (numbers and lists, since fairseq evaluates "
        f"it), got {quoted(error.text)} ({error}); nothing in it was run"
    )


def names_of(configuration: Any, value: Any, path: str) -> str:
    """Which fields have a value."""
    fields = _fields(configuration, path)
    found = [name for name, other in fields if type(other) is type(value) and other == value]
    return " or ".join(found) or "configuration"


def close_files(model: Any) -> None:
    """Take the paths out of a model's configuration, in place."""
    fields = vars(model) if isinstance(model, argparse.Namespace) else model
    if OmegaConf.is_dict(model):
        OmegaConf.set_struct(model, False)
    for name in list(fields):
        if isinstance(fields[name], (argparse.Namespace, dict, DictConfig)):
            close_files(fields[name])
        elif is_opened(name) and isinstance(fields[name], (str, bytes)):
            fields[name] = None


def forget_others(options: argparse.Namespace) -> None:
    """Of all options, take out what names a component that is not known here, in place.

    Hydra would look for a file of that name. None of these is needed for scoring.
    """
    for kind, registry in REGISTRIES.items():
        known = {*registry["registry"], *registry["dataclass_registry"]}
        if hasattr(options, kind) and not _is_in(getattr(options, kind), known):
            setattr(options, kind, None)


def check_architecture(model: Any, path: str) -> None:
    """Refuse, before they are built, what is not known and what is no language model.

    Raises:
        CheckpointError: for an architecture that is not registered, or one of fairseq's others.
    """
    name = getattr(model, "_name", None) or getattr(model, "arch", None)
    known = {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
    if isinstance(name, str) and name not in known:
        raise CheckpointError(
            f"path {path}: required a model of an architecture that is known here, got "
            f"{quoted(name)}; --user-dir, or an import, makes others known"
        )
    if not _is_in(name, known) or not known[name].__module__.startswith("fairseq."):
        return
    if not hasattr(known[name], "supported_targets"):
        raise CheckpointError(
            f"path {path}: required a model of an architecture for language modeling, got {name}"
        )


def _is_in(name: Any, known: Any) -> bool:
    return isinstance(name, str) and name in known


def _is_evaluated(name: str) -> bool:
    """By its own name, or in the part of an encoder or a decoder."""
    own = name.rpartition(".")[2]
    return own in EVALUATED or _PART.sub("", own) in EVALUATED


def is_opened(name: Any) -> bool:
    """Whether a model's option of this name, if it is a text, is that of a file."""
    return isinstance(name, str) and _OPENED.fullmatch(name) is not None


def _fields(part: Any, path: str, name: str = "", count: Any = None) -> Iterator[Tuple[str, Any]]:
    """(dotted name, value as it is written) of all that is not a container.

    Raises:
        CheckpointError: on the way, for over _MOST parts, each counted for each of its places.
    """
    count = count or itertools.count(1)
    if isinstance(part, Node):  # not by OmegaConf.to_container, which copies all at once
        yield from _fields(part._value(), path, name, count)
        return
    _check_count(next(count), path)
    if isinstance(part, argparse.Namespace):
        part = vars(part)
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _fields(value, path, f"{name}.{key}".lstrip("."), count)
    elif isinstance(part, (list, tuple)):
        for value in part:
            yield from _fields(value, path, f"{name}[]", count)
    else:
        yield name, part


def _check_count(parts: int, path: str) -> None:
    if parts > _MOST:
        raise CheckpointError(
            f"path {path}: required a configuration of at most {_MOST:,} fields, got one of more"
        )
