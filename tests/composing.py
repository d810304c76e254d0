"""fairseq's configuration of a command line, without the half second that hydra takes for it.

fairseq names to hydra every group and every value. So the rest, what hydra reads from files, is the
same for all command lines: hydra reads it once, and groups and values are put in as hydra does it.
Commands that run without the plugin use hydra alone.
"""

import copy
import functools
from typing import Any, List, Tuple

from fairseq.dataclass import utils
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

by_hydra = utils.compose


@functools.lru_cache(maxsize=None)
def _files(name: str) -> Any:
    return by_hydra(name, overrides=[], strict=False)


@functools.lru_cache(maxsize=None)
def _parsed(override: str) -> Tuple[str, Any]:
    found = OverridesParser.create().parse_override(override)
    return found.key_or_group, found.value()


def compose(name: str, overrides: List[str], strict: bool) -> Any:
    """As hydra's function of this name."""
    cfg, values = copy.deepcopy(_files(name)), {}
    OmegaConf.set_struct(cfg, True)
    for key, value in map(_parsed, overrides):
        *sections, field = key.split(".")
        part = values
        for section in sections:
            part = part.setdefault(section, {})
        if sections:
            part[field] = value
            continue
        node = ConfigStore.instance().load(f"{key}/{value}.yaml").node
        node._set_key(key)
        node._set_parent(cfg)
        cfg.__dict__["_content"][key] = node  # assigned, it would be merged
    cfg.merge_with(values)
    OmegaConf.set_struct(cfg, strict)
    return cfg
