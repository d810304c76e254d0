"""Checkpoints with something changed in them, in any container that fairseq has used."""

import os
import shutil
import warnings
import zipfile
from argparse import Namespace

import omegaconf
import torch
from fairseq.dataclass.utils import omegaconf_no_object_check
from omegaconf import OmegaConf

CONTAINERS = ("dict", "DictConfig", "Namespace")
_NAMED = ("criterion", "lr_scheduler", "optimizer", "task")


def edited(checkpoint, path, edit, container="dict"):
    """Write a checkpoint to ``path`` after ``edit(content)`` has changed what it holds."""
    content = torch.load(checkpoint, weights_only=False)
    edit(content)
    put_into(content, container)
    torch.save(content, path)
    return path


def with_state(**state):
    """An edit of the task's state."""
    return lambda content: content["task_state"].update(state)


class Malicious:
    """Unpickling it makes a folder."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


def with_torchscript(checkpoint, path):
    """The same archive, with code and constants of TorchScript."""
    script = path.with_name("script.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated
        torch.jit.save(torch.jit.script(torch.nn.Identity()), str(script))
    shutil.copy(checkpoint, path)
    with zipfile.ZipFile(script) as code, zipfile.ZipFile(path, "a") as out:
        folder = out.namelist()[0].partition("/")[0]
        for name in code.namelist():
            if name.startswith("script/code/"):
                out.writestr(name.replace("script", folder, 1), code.read(name))
        out.writestr(f"{folder}/constants.pkl", code.read("script/data.pkl"))
    return path


def set_options(content, **options):
    """Options of the model."""
    model = content["cfg"]["model"]
    (vars(model) if isinstance(model, Namespace) else model).update(options)


def put_into(content, container):
    """Have the configuration in a container: fairseq's of today, of 2021, or before."""
    if container == "DictConfig":
        content["cfg"] = _struct(content["cfg"])
    if container == "Namespace":
        content["args"], content["cfg"] = _flat(content["cfg"]), None


def _struct(cfg):
    with omegaconf_no_object_check():
        is_old = omegaconf.__version__ < "2.1"
        flags = {} if is_old else {"flags": {"allow_objects": True}}
        made = OmegaConf.create(cfg, **flags)
    OmegaConf.set_struct(made, True)
    return made


def _flat(cfg):
    """All options in one Namespace, as before 2021; those of the model go before others."""
    options = {}
    for part in (*(part for name, part in cfg.items() if name != "model"), cfg["model"]):
        part = vars(part) if isinstance(part, Namespace) else part
        options.update(part if isinstance(part, dict) else {})
    options.update({name: _name(cfg[name]) for name in _NAMED}, arch=_name(cfg["model"]))
    options.pop("_name")
    return Namespace(**options)


def _name(part):
    return part._name if isinstance(part, Namespace) else part["_name"]
