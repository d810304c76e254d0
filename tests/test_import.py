"""Importing the losses brings no fairseq; fairseq gets the plugin when it asks for it."""

import subprocess
import sys
from pathlib import Path

import forks
from tools import PLUGIN

# As where there is no fairseq, nor what comes with it.
ALONE = """
import importlib, sys, warnings
import numpy
import torch

def state():
    safe = getattr(torch.serialization, "get_safe_globals", list)()
    return hasattr(numpy, "compat"), len(safe), len(sys.meta_path), len(sys.path_hooks)

before = state()
sys.modules.update(dict.fromkeys(("fairseq", "omegaconf", "hydra")))
with warnings.catch_warnings():
    warnings.simplefilter("error")
    for name in ("", ".losses", ".noise", ".optim.row_sparse", ".optim.update_rules"):
        importlib.import_module("fairseq_bnce" + name)
import fairseq_bnce
assert "Scorer" in dir(fairseq_bnce)
for ask in (fairseq_bnce.register, lambda: fairseq_bnce.Scorer):
    try:
        ask()
    except ImportError as error:
        assert "pip install" in str(error) and error.name == "fairseq", error
    else:
        raise AssertionError("no error")
assert state() == before, (before, state())
"""

# In a process that has fairseq and not the plugin; each order in a fork of it.
ORDERS = """
import argparse, importlib, os, sys
import fairseq.utils
from fairseq import criterions, models, optim, tasks

def user_dir(folder):
    fairseq.utils.import_user_module(argparse.Namespace(user_dir=folder))

def registered():
    named = {
        "bnce" in criterions.CRITERION_REGISTRY,
        "rnn_lm" in models.MODEL_REGISTRY and "rnn_lm" in models.ARCH_MODEL_REGISTRY,
        "lazy_adam" in optim.OPTIMIZER_REGISTRY,
        tasks.TASK_REGISTRY["language_modeling"].__module__.startswith("fairseq_bnce."),
    }
    assert len(named) == 1, named
    return named.pop()

def alone():
    user_dir(sys.argv[1])

def losses_first():
    importlib.import_module("fairseq_bnce.losses")
    assert not registered()
    user_dir(sys.argv[2])  # a link

def by_hand():
    importlib.import_module("fairseq_bnce").register()
    assert registered()
    user_dir(sys.argv[1])

def scorer():
    from fairseq_bnce import Scorer

def a_criterion_first():
    import fairseq_bnce.criterions.bnce
    user_dir(sys.argv[1])

for order in (alone, losses_first, by_hand, scorer, a_criterion_first):
    child = os.fork()
    if not child:
        order()
        assert registered(), order.__name__
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, order.__name__
"""

# In such a process, too: uses the plugin as a library. What fairseq changes is changed before.
AS_IT_WAS = """
import argparse, builtins, inspect, os, sys, types
import numpy, torch
from fairseq import checkpoint_utils, options
from fairseq_cli import eval_lm, train

register, hooks = os.register_at_fork, []
def recorded(**functions):
    hooks.append(sys._getframe(1).f_globals["__name__"])
    register(**functions)
os.register_at_fork = recorded

def state():
    modules = {builtins, argparse, numpy, numpy.random, torch.random}
    classes = [each for _, each in inspect.getmembers(argparse, inspect.isclass)]
    named = {(owner, name): value for owner in (*modules, *classes)
             for name, value in vars(owner).items() if not isinstance(value, types.ModuleType)}
    ours = [(name, "eval") for name, module in sys.modules.items()
            if name.startswith("fairseq") and "eval" in vars(module)]
    draws = torch.get_rng_state().tolist()
    return named, ours, list(sys.meta_path), list(sys.path_hooks), draws, torch.get_num_threads()

def of_fairseq():
    safe = getattr(torch.serialization, "get_safe_globals", list)()
    return len(safe), checkpoint_utils.torch, options.parse_args_and_arch

before, unchanged = state(), of_fairseq()
import fairseq_bnce.losses
from fairseq_bnce import checkpoints
assert checkpoints.read(sys.argv[1])["model"] and of_fairseq() == unchanged
from fairseq_bnce import Scorer
from fairseq_bnce.cli import main
scorer = Scorer.from_checkpoint(sys.argv[1])
assert scorer.score(["w1 w2"]) < 0
assert main(["score", "--path", sys.argv[1], "--log-z-shift", "-1e-1", sys.argv[2]]) == 0
try:
    Scorer.from_checkpoint(sys.argv[2])
except ValueError:
    pass
for one, other in zip(before, state()):
    assert one == other, set(one) ^ set(other)
assert not any(name.startswith("fairseq_bnce") for name in hooks), hooks
"""


def test_losses_need_no_fairseq():
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, capture_output=True, cwd=Path(PLUGIN).parent)
    assert done.returncode == 0, done.stderr.decode()


def run_alone(folder, program, *arguments):
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    done = forks.run_alone([sys.executable, path, *arguments])
    assert done.returncode == 0, done.stdout.decode()


def test_fairseq_gets_the_plugin_in_whichever_order(tmp_path):
    link = tmp_path / "fairseq_bnce"
    link.symlink_to(PLUGIN)
    run_alone(tmp_path, ORDERS, PLUGIN, link)


def test_others_find_everything_as_it_was(language_model, tmp_path):
    """After the plugin was imported, read a checkpoint and scored, in vain too."""
    (tmp_path / "text").write_text("w1 w2\n")
    run_alone(tmp_path, AS_IT_WAS, language_model("lstm_lm"), tmp_path / "text")
