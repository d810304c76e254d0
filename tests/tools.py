"""Running fairseq's commands from tests, and building its objects in this process."""

import importlib
import logging
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, List, Tuple

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

PLUGIN = str(Path(__file__).parents[1] / "fairseq_bnce")

LSTM = ["--arch", "lstm_lm", "--decoder-embed-dim", "16", "--decoder-hidden-size", "16"]
LSTM += ["--decoder-out-embed-dim", "16", "--dropout", "0"]
TRANSFORMER = ["--arch", "transformer_lm", "--decoder-embed-dim", "16", "--decoder-layers", "1"]
TRANSFORMER += ["--decoder-ffn-embed-dim", "16", "--decoder-attention-heads", "2", "--dropout", "0"]
TRANSFORMER += ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]
TRANSFORMER += ["--optimizer", "adam", "--lr", "0.003"]
TIED_TRANSFORMER = [*TRANSFORMER, "--share-decoder-input-output-embed"]
TRAINING = ["--optimizer", "sgd", "--lr", "0.5", "--batch-size", "8", "--tokens-per-sample", "16"]
TRAINING += ["--max-epoch", "1", "--cpu", "--num-workers", "0", "--no-progress-bar"]
TRAINING += ["--log-format", "json", "--no-epoch-checkpoints"]
# fairseq's later versions drop the last batch, in validation too, if it is no multiple of this (8).
TRAINING += ["--required-batch-size-multiple", "1"]


class CommandFailed(AssertionError):
    """A command that should have worked; its output is the message."""


def write_lines(path: Path, lines: List[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(
    module: str, *arguments: Any, check: bool = True, fresh: bool = False, **kwargs: Any
) -> str:
    """Run ``python -m module``, or its cli_main in a fork, and return all that it printed.

    A fork saves the seconds that importing torch and fairseq takes. ``fresh`` starts a new
    interpreter: for what must not have this plugin imported, and for whatever forks itself.
    """
    command = [module, *map(str, arguments)]
    code, output = _spawn(command, **kwargs) if fresh else _fork(command)
    if check and code:
        raise CommandFailed(f"{' '.join(command)} exited with {code}:\n{output}")
    if not check and not code:
        raise CommandFailed(f"{' '.join(command)} should have failed:\n{output}")
    return output


def _spawn(command: List[str], env: Any = None, **kwargs: Any) -> Tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        **kwargs,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _fork(command: List[str]) -> Tuple[int, str]:
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os._exit(_in_child(command, printed.fileno()))
        status = os.waitpid(child, 0)[1]
        printed.seek(0)
        return status, printed.read().decode("utf-8", "replace")


def _in_child(command: List[str], output: int) -> int:
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    sys.argv = command
    logging.root.handlers.clear()  # pytest's; fairseq's commands set up their own
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s | %(message)s")
    try:
        importlib.import_module(command[0]).cli_main()
        return 0
    except BaseException:  # noqa: B036 - whatever ends the command is its result
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def binarise(folder: Path, destination: Path, *flags: str) -> Path:
    prefix = ["--trainpref", folder / ("train.txt" if not flags else "train")]
    prefix += ["--validpref", folder / ("valid.txt" if not flags else "valid")]
    if (folder / "test.txt").exists():
        prefix += ["--testpref", folder / "test.txt"]
    only_source = [] if flags else ["--only-source"]
    run("fairseq_cli.preprocess", *only_source, *flags, *prefix, "--destdir", destination)
    return destination


def train(data: Path, save_dir: Path, *flags: str, check: bool = True, plugin: bool = True) -> str:
    user = ["--user-dir", PLUGIN] if plugin else []
    task = [] if "--task" in flags else ["--task", "language_modeling"]
    return run(
        "fairseq_cli.train",
        *[data, *user, *task, "--save-dir", save_dir, *TRAINING, *flags],
        check=check,
        fresh=not plugin,
    )


def evaluate(data: Path, checkpoint: Path, *flags: str, check: bool = True, plugin: bool = True):
    """Everything that fairseq-eval-lm prints for the validation split."""
    user = ["--user-dir", PLUGIN] if plugin else []
    # Without the plugin, torch >= 2.6 refuses every checkpoint of fairseq's.
    stock = {} if plugin else {"fresh": True, "env": {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}}
    arguments = [data, *user, "--path", checkpoint, "--gen-subset", "valid", "--cpu"]
    arguments += ["--no-progress-bar", "--tokens-per-sample", "16", "--num-workers", "0", *flags]
    return run("fairseq_cli.eval_lm", *arguments, check=check, **stock)


def perplexity(output: str) -> float:
    """From the last line of fairseq-eval-lm."""
    return float(re.findall(r"Perplexity: ([\d.]+|inf|nan)", output)[-1])


def loss_bits(output: str) -> float:
    return float(re.findall(r"Loss \(base 2\): ([-\d.]+)", output)[-1])


def build(data: Path, *flags: str) -> Tuple[Any, Any, torch.nn.Module]:
    """(configuration, task, model) as fairseq-train would make them."""
    parser = options.get_training_parser()
    task = [] if "--task" in flags else ["--task", "language_modeling", "--tokens-per-sample", "16"]
    arguments = [str(data), "--user-dir", PLUGIN, *task, "--batch-size", "4", "--cpu", *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    torch.manual_seed(cfg.common.seed)
    built = tasks.setup_task(cfg.task)
    return cfg, built, built.build_model(cfg.model)


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
