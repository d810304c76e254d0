"""Importing the losses brings no fairseq; fairseq gets the plugin when it asks for it."""

import subprocess
import sys

import forks
from tools import PLUGIN

# What fairseq has been told, by the plugin's own names.
REGISTERED = """
import argparse
import importlib
import sys

MODULES = ("", ".losses", ".noise", ".optim.row_sparse", ".optim.update_rules")

def user_dir(folder):
    from fairseq.utils import import_user_module
    import_user_module(argparse.Namespace(user_dir=folder))

def registered():
    from fairseq import criterions, models, optim, tasks
    named = {
        "bnce" in criterions.CRITERION_REGISTRY,
        "rnn_lm" in models.MODEL_REGISTRY and "rnn_lm" in models.ARCH_MODEL_REGISTRY,
        "lazy_adam" in optim.OPTIMIZER_REGISTRY,
        tasks.TASK_REGISTRY["language_modeling"].__module__.startswith("fairseq_bnce."),
    }
    assert len(named) == 1, named
    return named.pop()
"""

ALONE = """
import numpy
import torch

def state():
    safe = getattr(torch.serialization, "get_safe_globals", list)()
    return hasattr(numpy, "compat"), len(safe), len(sys.meta_path), len(sys.path_hooks)

before = state()
for name in MODULES:
    importlib.import_module("fairseq_bnce" + name)
brought = {name.split(".")[0] for name in sys.modules} & {"fairseq", "omegaconf", "hydra"}
assert not brought, brought
assert state() == before, (before, state())
user_dir(sys.argv[1])
assert registered()
"""

# In a process that has fairseq and not the plugin; each order in a fork of it.
ORDERS = """
import os
import fairseq.utils

def alone():
    user_dir(sys.argv[1])

def losses_first():
    importlib.import_module("fairseq_bnce.losses")
    assert not registered()
    user_dir(sys.argv[1])

def package_first():
    importlib.import_module("fairseq_bnce")
    assert not registered()
    user_dir(sys.argv[1])
    user_dir(sys.argv[1])

def by_a_link():
    importlib.import_module("fairseq_bnce.losses")
    user_dir(sys.argv[2])

def by_hand():
    importlib.import_module("fairseq_bnce").register()
    assert registered()
    user_dir(sys.argv[1])

def scorer():
    from fairseq_bnce import Scorer

def scoring():
    import fairseq_bnce.scoring

def a_model():
    import fairseq_bnce.models.rnn_lm

def a_criterion_first():
    import fairseq_bnce.criterions.batch_nce
    user_dir(sys.argv[1])

EARLY = (alone, losses_first, package_first, by_a_link, by_hand)
for order in (*EARLY, scorer, scoring, a_model, a_criterion_first):
    child = os.fork()
    if not child:
        order()
        assert registered(), order.__name__
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, order.__name__
"""

WITHOUT_FAIRSEQ = '''
import warnings

class Without:
    """A finder that does not find fairseq and what comes with it."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        is_hidden = name.split(".")[0] in ("fairseq", "omegaconf", "hydra")
        return None if is_hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = map(Without, sys.meta_path)
warnings.simplefilter("error")
for name in MODULES:
    importlib.import_module("fairseq_bnce" + name)
import fairseq_bnce
for ask in (fairseq_bnce.register, lambda: fairseq_bnce.Scorer):
    try:
        ask()
    except ImportError as error:
        assert "pip install" in str(error) and error.name == "fairseq", error
    else:
        raise AssertionError("no error")
'''


def run(program: str) -> str:
    """In a fresh interpreter; its standard error."""
    command = [sys.executable, "-c", REGISTERED + program, PLUGIN]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def test_losses_bring_nothing_and_fairseq_gets_the_plugin_afterwards():
    run(ALONE)


def test_fairseq_gets_the_plugin_in_whichever_order(tmp_path):
    link, program = tmp_path / "fairseq_bnce", tmp_path / "orders.py"
    link.symlink_to(PLUGIN)
    program.write_text(REGISTERED + ORDERS, encoding="utf-8")
    done = forks.run_alone([sys.executable, program, PLUGIN, link])
    assert done.returncode == 0, done.stdout.decode()


def test_without_fairseq_the_losses_work_silently():
    assert run(WITHOUT_FAIRSEQ) == ""
