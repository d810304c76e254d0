"""Let torch >= 2.6 read fairseq's checkpoints, with its check of their contents left on.

From 2.6 on ``torch.load`` refuses classes that it was not told of, and fairseq's checkpoints hold
some: architectures of old keep their options in an argparse.Namespace, and fairseq before 2022
saved omegaconf objects. None of these runs code of its own when unpickled.
"""

import argparse
import collections
import typing

import omegaconf
import omegaconf.base
import omegaconf.nodes
import torch


def allow_fairseq_checkpoints() -> None:
    """Add the plain containers that fairseq checkpoints hold to torch's allow-list."""
    add = getattr(torch.serialization, "add_safe_globals", None)
    if add is not None:
        add(_containers())


def _containers() -> typing.List[typing.Any]:
    # Metadata is in omegaconf.base from 2.1 on; 2.0 has no torch beside it that would ask.
    metadata = [
        getattr(omegaconf.base, name)
        for name in ("Metadata", "ContainerMetadata")
        if hasattr(omegaconf.base, name)
    ]
    nodes = ("AnyNode", "StringNode", "IntegerNode", "FloatNode", "BooleanNode", "EnumNode")
    return [
        argparse.Namespace,
        collections.defaultdict,
        collections.OrderedDict,
        typing.Any,
        dict,
        list,
        int,
        omegaconf.DictConfig,
        omegaconf.ListConfig,
        *metadata,
        *(getattr(omegaconf.nodes, name) for name in nodes),
    ]


allow_fairseq_checkpoints()
