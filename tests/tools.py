"""Running fairseq's commands from tests, and building its objects in this process."""

import contextlib
import copy
import functools
import importlib
import json
import logging
import os
import re
import resource
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import forks
import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils

from fairseq_bnce.errors import ScoringError

PLUGIN = str(Path(__file__).parents[1] / "fairseq_bnce")

LSTM = ["--arch", "lstm_lm", "--decoder-embed-dim", "16", "--decoder-hidden-size", "16"]
LSTM += ["--decoder-out-embed-dim", "16", "--dropout", "0"]
TRANSFORMER = ["--arch", "transformer_lm", "--decoder-embed-dim", "16", "--decoder-layers", "1"]
TRANSFORMER += ["--decoder-ffn-embed-dim", "16", "--decoder-attention-heads", "2", "--dropout", "0"]
TRANSFORMER += ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]
TRANSFORMER += ["--optimizer", "adam", "--lr", "0.003"]
TIED_TRANSFORMER = [*TRANSFORMER, "--share-decoder-input-output-embed"]
LANGUAGE_MODELING = ["--task", "language_modeling", "--tokens-per-sample", "16"]
TRAINING = ["--optimizer", "sgd", "--lr", "0.5", "--batch-size", "8", "--max-epoch", "1", "--cpu"]
TRAINING += ["--num-workers", "0", "--no-progress-bar", "--log-format", "json"]
TRAINING += ["--no-epoch-checkpoints"]
# fairseq's later versions drop the last batch, in validation too, if it is no multiple of this (8).
TRAINING += ["--required-batch-size-multiple", "1"]


def modern(*values: Any) -> List[Any]:
    """For parametrize: left out in the stock environment, where the values beside them will do.

    A tuple has a value of each argument.
    """
    return _marked(values, pytest.mark.modern)


def slow(*values: Any) -> List[Any]:
    """For parametrize: variants of a test that take long, and that those beside them stand for."""
    return _marked(values, pytest.mark.slow)


def _marked(values: Tuple[Any, ...], mark: Any) -> List[Any]:
    each = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*one, marks=mark) for one in each]


def write_lines(path: Path, lines: List[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run(module: str, *arguments: Any, check=True, plugin=True, env=None) -> str:
    """Run ``python -m module``, in a fork, and return all that it printed.

    A fork saves the seconds that importing torch and fairseq takes. Without ``plugin`` it is one
    of a process that has not imported this plugin.
    """
    start = forks.run if plugin else forks.run_alone
    return _printed(start, [sys.executable, "-m", module, *map(str, arguments)], check, env)


def _printed(start: Callable[..., Any], command: List[str], check=True, env=None) -> str:
    done = start(command, env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    output, what = done.stdout.decode("utf-8", "replace"), " ".join(command[2:])
    assert check == (done.returncode == 0), f"{what} exited with {done.returncode}:\n{output}"
    return output


def binarise(folder: Path, destination: Path, *flags: Any) -> Path:
    """By fairseq-preprocess: ``SPLIT.txt``, or with ``--source-lang`` ``SPLIT.LANGUAGE``."""
    is_pair = "--source-lang" in flags
    arguments = ["--destdir", destination, *flags, *([] if is_pair else ["--only-source"])]
    for split in ("train", "valid", "test"):
        path = folder / (split if is_pair else f"{split}.txt")
        if list(folder.glob(f"{path.name}*")):
            arguments += [f"--{split}pref", path]
    run("fairseq_cli.preprocess", *arguments)
    return destination


def write_program(path: Path, text: str) -> None:
    """A Python program that is called by its name.

    This Python's path may have a space, which a #! line can't carry: sh starts it, for which the
    second line is a command, as it is a string for Python.
    """
    start = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} -IS \"$0\" \"$@\"\n' '''\n"
    path.write_text(start + text)
    path.chmod(0o755)


def train(data: Path, save_dir: Path, *flags: str, check: bool = True, plugin: bool = True) -> str:
    user = ["--user-dir", PLUGIN] if plugin else []
    task = [] if "--task" in flags else LANGUAGE_MODELING
    arguments = [data, *user, *task, "--save-dir", save_dir, *TRAINING, *flags]
    return run("fairseq_cli.train", *arguments, check=check, plugin=plugin)


def evaluate(data: Path, checkpoint: Path, *flags: Any, check=True, plugin=True, block="16") -> str:
    """Everything that fairseq-eval-lm prints for the validation split.

    ``block`` is --tokens-per-sample, and None leaves the flag out.
    """
    flags = flags if block is None else ("--tokens-per-sample", block, *flags)
    if plugin and check and "--user-dir" not in flags:
        command = [sys.executable, "-m", "fairseq_cli.eval_lm", "--path", checkpoint, *flags]
        command = list(map(str, command))
        main = functools.partial(_evaluate, _evaluation(data, *flags), str(checkpoint), command)
        return _printed(functools.partial(forks.run, main=main), command)
    user = ["--user-dir", PLUGIN] if plugin else []
    # Without the plugin, torch >= 2.6 refuses every checkpoint of fairseq's.
    env = {} if plugin else {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    arguments = _evaluation_flags(data, *user, "--path", checkpoint, *flags)
    return run("fairseq_cli.eval_lm", *arguments, check=check, plugin=plugin, env=env)


def _evaluation_flags(data: Path, *flags: Any) -> List[str]:
    fixed = ["--gen-subset", "valid", "--cpu", "--no-progress-bar", "--num-workers", "0"]
    return list(map(str, [data, *fixed, *flags]))


@functools.lru_cache(maxsize=None)
def _evaluation(data: Path, *flags: str) -> Any:
    """The configuration of fairseq-eval-lm, but for ``--path``."""
    arguments = _evaluation_flags(data, "--user-dir", PLUGIN, "--path", "", *flags)
    return composed(arguments, options.get_eval_lm_parser())


def _evaluate(cfg: Any, checkpoint: str, command: List[str]) -> None:
    """In a fork. Imported anew, for the module sets up logging when it is."""
    sys.argv = command[2:]
    sys.modules.pop("fairseq_cli.eval_lm", None)
    command = importlib.import_module("fairseq_cli.eval_lm")
    cfg.common_eval.path = checkpoint
    distributed_utils.call_main(cfg, command.main)


def validated(data: Path, checkpoint: Path, overrides: str = "{}") -> Dict[str, float]:
    """The numbers that fairseq-validate prints, by name."""
    flags = ["--user-dir", PLUGIN, *LANGUAGE_MODELING, "--path", checkpoint, "--cpu"]
    flags += ["--valid-subset", "valid", "--no-progress-bar", "--num-workers", "0"]
    flags += ["--batch-size", "8", "--required-batch-size-multiple", "1"]
    output = run("fairseq_cli.validate", data, *flags, "--model-overrides", overrides)
    last = output.splitlines()[-1]
    return {name: float(value) for name, value in re.findall(r"\| (\w+) ([-\d.]+)", last)}


def perplexity(output: str) -> float:
    """From the last line of fairseq-eval-lm."""
    return float(re.findall(r"Perplexity: ([\d.]+|inf|nan)", output)[-1])


def loss_bits(output: str) -> float:
    return float(re.findall(r"Loss \(base 2\): ([-\d.]+)", output)[-1])


def resumed(data: Path, folder: Path, *flags: str, after: int, until: int) -> Tuple[str, str]:
    """What a whole run prints, and one that goes on after an interruption: they end alike."""
    whole = train(data, folder / "whole", *flags, "--max-update", str(until))
    train(data, folder / "parts", *flags, "--max-update", str(after))
    parts = train(data, folder / "parts", *flags, "--max-update", str(until))
    assert re.search(rf"Loaded checkpoint .* @ {after} updates", parts)
    want, got = (parameters(folder / run / "checkpoint_last.pt") for run in ("whole", "parts"))
    assert want.keys() == got.keys()
    for name, value in want.items():  # fairseq 0.12.2 never initialises _float_tensor
        assert name.endswith("_float_tensor") or torch.equal(value, got[name]), name
    return whole, parts


def build(data: Path, *flags: str) -> Tuple[Any, Any, torch.nn.Module]:
    """(configuration, task, model) as fairseq-train would make them."""
    cfg = copy.deepcopy(_configuration(data, *flags))
    torch.manual_seed(cfg.common.seed)
    built = tasks.setup_task(cfg.task)
    return cfg, built, built.build_model(cfg.model)


@functools.lru_cache(maxsize=None)
def _configuration(data: Path, *flags: str) -> Any:
    """Once for all tests with these flags."""
    task = [] if "--task" in flags else LANGUAGE_MODELING
    arguments = [str(data), "--user-dir", PLUGIN, *task, "--batch-size", "4", "--cpu", *flags]
    return composed(arguments)


def composed(arguments: List[str], parser: Any = None) -> Any:
    """The configuration of a command's flags; of fairseq-train by default."""
    parser = parser or options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


def first_batch(task: Any, split: str = "train", sentences: int = 4) -> Any:
    task.load_dataset(split)
    iterator = task.get_batch_iterator(task.dataset(split), max_sentences=sentences)
    return next(iterator.next_epoch_itr(shuffle=False))


def call_command(*arguments: Any) -> int:
    """``fairseq-bnce`` in this process, which leaves the root logger as it was: its exit status."""
    from fairseq_bnce import cli

    handlers = logging.root.handlers[:]
    try:
        return cli.main(list(map(str, arguments)))
    except SystemExit as error:
        return error.code
    finally:
        logging.root.handlers[:] = handlers


@contextlib.contextmanager
def refusing(argument: str) -> Iterator[None]:
    """The block raises a ScoringError about this argument."""
    with pytest.raises(ScoringError) as caught:
        yield
    assert caught.value.argument == argument


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def fill_disk(size: int) -> None:
    """In a child (``preexec_fn``): no file grows beyond ``size`` bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def valid_stats(output: str) -> Dict[str, float]:
    """The last validation line of a run with --log-format json, as numbers."""
    lines = re.findall(r"valid \| (\{.*\})", output)
    return {key[6:]: float(value) for key, value in json.loads(lines[-1]).items()}


def word_scores(output: str) -> List[Tuple[str, float]]:
    """[(word, log-probability)] of --output-word-probs, in the order of the corpus."""
    lines = re.findall(r"\| (\d+) (.* \[-?[\d.]+\])", output)
    text = " ".join(line for _, line in sorted(lines, key=lambda line: int(line[0])))
    return [(word, float(score)) for word, score in re.findall(r"(\S+) \[(-?[\d.]+)\]", text)]


def parameters(checkpoint: Path) -> Dict[str, torch.Tensor]:
    """By name."""
    return torch.load(checkpoint, weights_only=False)["model"]


def refused(data: Path, tmp_path: Path, *flags: str) -> str:
    """What fairseq-train prints, the run having failed before anything was saved."""
    output = train(data, tmp_path / "run", *flags, check=False)
    assert not list((tmp_path / "run").glob("*.pt")), output
    return re.sub(r"\s+", " ", output)
