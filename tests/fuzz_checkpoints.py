"""Seeded edits of checkpoints: wrong types, NaN, missing keys, programs, damaged bytes.

Each has to end in scores that are finite and right, or in one error that says what is wrong; see
test_fuzz_checkpoints.py.
"""

import copy
import math
import random
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from checkpoint_edits import put_into
from fairseq import checkpoint_utils, tasks

from fairseq_bnce import Scorer
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.scoring import ScoringError

TEXT = ["w1 w2 w3", "w5", ""]
# hydra takes a while for all options in one Namespace.
_CONTAINERS = ["dict"] * 17 + ["DictConfig"] * 2 + ["Namespace"]
# Of the configuration: the others are fairseq's own affairs, and take their time.
_SECTIONS = ("task", "model", "criterion", "optimizer", "lr_scheduler", "checkpoint")


def hostile(rng, made):
    """A value that is not what is expected; a program makes the folder ``made``."""
    program = f"__import__('os').mkdir({str(made)!r})"
    plain = [None, True, False, 0, -1, 7, 1.5, math.nan, math.inf, 1e308, 10**9, 10**18, -(10**400)]
    texts = ["", "x", "0.5", "1" * 5000, "${x}", "${task.data}", "???", "\ud800", "a\0b", "[1] * 3"]
    programs = [program, f"[{program}]", program.encode(), f"(lambda: {program})()"]
    large = ["[(1, 1)] * 1000000000", "(" * 3000, "9" * 300 + "*[1]"]
    nested = [[], [[]], {}, {"_name": "x"}, [program], {"a": program}, Namespace(), (1, 2), set()]
    tensors = [torch.tensor(math.nan), torch.zeros(0), torch.ones(3, dtype=torch.complex64)]
    return copy.deepcopy(rng.choice(rng.choice([plain, texts, programs, large, nested, tensors])))


class Fuzzer:
    """Edits of one checkpoint.

    Args:
        checkpoint: a file.
        data: folder with its dict.txt.
        folder: where edited files go.
    """

    def __init__(self, checkpoint, data, folder):
        self.data, self.file = str(data), Path(folder) / "edited.pt"
        self.made = Path(folder) / "made"
        self.content = torch.load(checkpoint, weights_only=False)
        self.content.pop("last_optimizer_state", None)
        self.content["cfg"] = {name: self.content["cfg"][name] for name in _SECTIONS}
        torch.save(self.content, self.file)
        self.whole = self.file.read_bytes()
        self.scores = Scorer.from_checkpoint(self.file, self.data).score(TEXT)
        self.task = tasks.setup_task(_task_options(self.data))

    def run(self, seed):
        """One edit: what it was, and what came of it.

        Raises:
            AssertionError: for a wrong answer, or a program that ran; whatever else is a bug.
        """
        rng = random.Random(seed)
        told, may_differ = rng.choice(_KINDS)(self, rng)
        try:
            scores = Scorer.from_checkpoint(self.file, self.data).score(TEXT)
            assert np.isfinite(scores).all(), f"{told}: {scores}"
            assert may_differ or np.allclose(scores, self.scores, atol=1e-5), f"{told}: {scores}"
            came = "scores"
        except (ScoringError, UnsupportedModelError) as error:
            assert "\n" not in str(error) and len(str(error)) < 2000, f"{told}: {error}"
            came = str(error)
        if rng.random() < 0.3:
            self._load_for_eval_lm(told)
        assert not self.made.exists(), told
        return told, came

    def _load_for_eval_lm(self, told):
        try:
            checkpoint_utils.load_model_ensemble_and_task([str(self.file)], task=self.task)
        except (ScoringError, UnsupportedModelError) as error:
            assert "\n" not in str(error) and len(str(error)) < 2000, f"{told}: {error}"

    def option(self, rng):
        """Of the model or the task, or a part of the configuration."""
        content = copy.deepcopy(self.content)
        cfg = content["cfg"]
        section = rng.choice(["model", "model", "task", rng.choice(list(cfg))])
        options = vars(cfg[section]) if isinstance(cfg[section], Namespace) else cfg[section]
        if not isinstance(options, dict) or rng.random() < 0.05:
            return self._replaced(rng, content, cfg, section)
        return self._replaced(rng, content, options, rng.choice(list(options)))

    def part(self, rng):
        """At the top, or of the task's state."""
        content = copy.deepcopy(self.content)
        place = content if rng.random() < 0.3 else content["task_state"]
        return self._replaced(rng, content, place, rng.choice(list(place)))

    def _replaced(self, rng, content, place, name):
        was = place[name]
        if rng.random() < 0.1:
            del place[name]
            told = f"{name} deleted"
        else:
            place[name] = hostile(rng, self.made)
            told = f"{name} = {str(place[name])[:60]!r}"
        # A switch, and a shift of the scores, that are valid are no mistake.
        is_switch = isinstance(was, bool) or name in ("log_z", "mu_z", "score_squashing", "model")
        return self._written(content, rng.choice(_CONTAINERS), told), is_switch

    def _written(self, content, container, told):
        try:
            put_into(content, container)
        except Exception:  # omegaconf has no such value, so that no checkpoint holds it
            container = "dict"
        if isinstance(content.get("cfg"), dict) or container != "dict":
            told = f"{told} in a {container}"
        torch.save(content, self.file)
        return told

    def parameter(self, rng):
        """A wrong number, type or shape."""
        content = copy.deepcopy(self.content)
        parameters = content["model"]
        name = rng.choice(list(parameters))
        values = parameters[name]
        change = rng.choice(_CHANGES)
        parameters[name] = change(rng, values) if values.numel() else values
        torch.save(content, self.file)
        return f"{name}: {_CHANGES.index(change)}", True

    def names(self, rng):
        """Parameters that are missing, or others' too."""
        content = copy.deepcopy(self.content)
        parameters = content["model"]
        name = rng.choice(list(parameters))
        kept = parameters.pop(name)
        if rng.random() < 0.5:
            parameters[rng.choice([name + "x", "", 3, name.upper()])] = kept
        torch.save(content, self.file)
        return f"{name} gone", False

    def bytes(self, rng):
        """As damaged by a kill, a full disk or a bad one."""
        content = bytearray(self.whole)
        start = rng.randrange(len(content))
        kind = rng.choice(["cut", "bit", "zeros", "twice", "noise"])
        if kind == "cut":
            del content[start:]
        elif kind == "bit":
            content[start] ^= 1 << rng.randrange(8)
        elif kind == "zeros":
            content[start : start + 512] = bytes(len(content[start : start + 512]))
        elif kind == "twice":
            content[start:start] = content[start : start + 100]
        else:
            content[start : start + 16] = rng.randbytes(16)
        self.file.write_bytes(content)
        return f"{kind} at {start:,}", False


def _task_options(data):
    """The configuration of fairseq-eval-lm's task."""
    options = dict.fromkeys(("train_subset", "model_path", "criterion_name", "save_dir"))
    return Namespace(task="language_modeling", data=data, ddp_backend="none", **options)


def _with(value):
    def change(rng, values):
        changed = values.clone()
        changed.view(-1)[rng.randrange(changed.numel())] = value
        return changed

    return change


_CHANGES = [
    *map(_with, (math.nan, math.inf, -math.inf, 3e38, 0.0)),
    lambda rng, values: values * 1e38,
    lambda rng, values: values.half(),
    lambda rng, values: values.bfloat16(),
    lambda rng, values: values.double(),
    lambda rng, values: values.long(),
    lambda rng, values: values.bool(),
    lambda rng, values: values.to(torch.complex64),
    lambda rng, values: values.to_sparse(),
    lambda rng, values: values[..., :-1].clone(),
    lambda rng, values: values.t().clone() if values.dim() == 2 else values[None],
    lambda rng, values: values.reshape(-1),
    lambda rng, values: values.view(-1)[:1].expand(10**12),
    lambda rng, values: values.numpy().tolist(),
    lambda rng, values: None,
]
_KINDS = [Fuzzer.option] * 8 + [Fuzzer.part] * 4 + [Fuzzer.parameter] * 3
_KINDS += [Fuzzer.bytes] * 3 + [Fuzzer.names]
