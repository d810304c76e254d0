"""Register this plugin's names before fairseq-hydra-train composes its configuration.

fairseq imports ``common.user_dir`` too late: hydra looks up groups such as ``criterion=bnce`` and
the fields of tasks before that. But hydra imports every package of the ``hydra_plugins`` namespace,
and calls search path plugins before it composes. So this plugin imports the folder of
``common.user_dir`` then, if a command names ours.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import List, Optional

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf


class FairseqBnceNames(SearchPathPlugin):
    """Adds no search path: the import puts the names into hydra's store."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if "fairseq_cli.hydra_train" not in (*sys.modules, _main_module()):
            return
        user_dir = named_user_dir(sys.argv[1:])
        if user_dir is not None and Path(user_dir).name == "fairseq_bnce":
            from fairseq.utils import import_user_module

            import_user_module(argparse.Namespace(user_dir=user_dir))


def named_user_dir(arguments: List[str]) -> Optional[str]:
    """Return ``common.user_dir`` of fairseq-hydra-train's arguments or of the file they name."""
    values = [re.fullmatch(r"\+{0,2}common\.user_dir=(.+)", argument) for argument in arguments]
    given = [match.group(1).strip("'\"") for match in values if match]
    return given[-1] if given else _user_dir_of_file(arguments)


def _user_dir_of_file(arguments: List[str]) -> Optional[str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", "--config-path", "-cp", dest="folder", default="")
    parser.add_argument("--config-name", "-cn", dest="name", default="")
    parser.add_argument("--cfg", "-c")  # else argparse reads it as the start of another flag
    named, _ = parser.parse_known_args(arguments)
    path = Path(named.folder, re.sub(r"(\.yaml)?$", ".yaml", named.name, count=1))
    return OmegaConf.select(OmegaConf.load(path), "common.user_dir") if path.is_file() else None


def _main_module() -> Optional[str]:
    """Return the module of ``python -m``."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
