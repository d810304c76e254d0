"""The documentation's commands in bash, with a program on its path for each of ours."""

import argparse
import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import forks
from experiments.recipes import RECIPES
from fairseq import options
from tools import PLUGIN

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    "fairseq-train": "fairseq_cli.train",
    "fairseq-eval-lm": "fairseq_cli.eval_lm",
    "fairseq-hydra-train": "fairseq_cli.hydra_train",
    "fairseq-preprocess": "fairseq_cli.preprocess",
}
SCRIPTS = [path.name for path in (ROOT / "scripts").iterdir() if path.is_file()]
# With it the flags of a part of fairseq-train's command line are parsed as those of a whole one.
TRAINING = ["DATA", "--task", "language_modeling", "--arch", "lstm_lm", "--criterion", "bnce"]
TRAINING += ["--optimizer", "sparse_sgd"]
PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-eval-lm": options.get_eval_lm_parser,
}


def run(text: str, folder: Path, further: Dict[str, Sequence[str]]) -> Tuple[int, str]:
    """Run it as a script that ends with the first command that fails: (exit status, its output).

    ``further`` are arguments that are appended to those of a command, by its name.
    """
    _write_programs(
        folder,
        lambda name: f'exec {shlex.join(_program(name))} "$@" {shlex.join(further.get(name, []))}',
    )
    (folder / "fairseq_bnce").symlink_to(ROOT / "fairseq_bnce")
    path = f"{folder / 'commands'}:/usr/bin:/bin"
    return _bash(["-euo", "pipefail"], text, folder, {"PATH": path, "PYTHONPATH": str(ROOT)})


def parsed(text: str, folder: Path) -> Tuple[int, List[str], str]:
    """Have our commands parse their arguments and do nothing more; others do nothing at all.

    How many there were, what the parsers refused, and what bash printed.
    """
    log = folder / "log"
    log.touch()
    _write_programs(folder, lambda name: f"printf '%s\\0' {name} \"$@\" END >> {log}")
    text = f"command_not_found_handle() {{ :; }}\n{text}"
    _, output = _bash([], text, folder, {"PATH": str(folder / "commands")})
    lines = log.read_text("utf-8").split("\0END\0")[:-1]
    refused = []
    for name, *arguments in (line.split("\0") for line in lines):
        arguments = [argument for argument in arguments if argument != "..."]
        errors = "".join(_errors(name, arguments, folder))
        refused += [f"{name} {' '.join(arguments)}\n{errors}"] if errors else []
    return len(lines), refused, output


def _write_programs(folder: Path, line: Callable[[str], str]) -> None:
    for place, names in (("commands", [*MODULES, "fairseq-bnce"]), ("scripts", SCRIPTS)):
        (folder / place).mkdir()
        for name in names:
            (folder / place / name).write_text(f"#!/bin/sh\n{line(name)}\n")
            (folder / place / name).chmod(0o755)


def _program(name: str) -> List[str]:
    if name in MODULES:
        return [sys.executable, "-m", MODULES[name]]
    return [sys.executable, str(ROOT / "scripts" / name)]


def _bash(flags: List[str], text: str, folder: Path, named: Dict[str, str]) -> Tuple[int, str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **named}
    done = subprocess.run(
        ["/bin/bash", *flags, "-c", text],
        **{"cwd": folder, "env": env, "stdin": subprocess.DEVNULL},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _errors(name: str, arguments: List[str], folder: Path) -> List[str]:
    """What the parser of a command, and that of fairseq's flags in it, print if they refuse."""
    if name.endswith(".sh"):
        return []
    if name in PARSERS:
        return _refusals(name, arguments)
    done = forks.run([*_program(name), *arguments], cwd=folder, preexec_fn=_end_when_parsed)
    errors = [done.stdout.decode("utf-8", "replace")] if done.returncode else []
    for flags in _flags_of_training(arguments):
        errors += _refusals("fairseq-train", flags if "--task" in flags else [*TRAINING, *flags])
    return errors


def _flags_of_training(arguments: List[str]) -> List[List[str]]:
    """Those for fairseq-train in the command lines of scripts: after ``--``, and in --flags-for.

    The latter are flags of the criterion that has the label: itself, or as in LABEL=CRITERION.
    """
    groups = []
    if "--" in arguments:
        end = arguments.index("--")
        groups, arguments = [arguments[end + 1 :]], arguments[:end]
    recipe = next((RECIPES[name].training for name in arguments if name in RECIPES), ())
    places = [place for place, argument in enumerate(arguments) if argument == "--flags-for"]
    named = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    for place in places:
        label, flags = arguments[place + 1 : place + 3]
        groups.append(["--criterion", named.get(label, label), *recipe, *flags.split()])
    return groups


def _refusals(name: str, arguments: List[str]) -> List[str]:
    # By its name, the environment's package would be found, which may be another checkout.
    arguments = [PLUGIN if argument == "fairseq_bnce" else argument for argument in arguments]
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            options.parse_args_and_arch(PARSERS[name](), arguments)
        except SystemExit:
            return [errors.getvalue()]
    return []


def _end_when_parsed() -> None:
    """For a child: the program ends well where its arguments are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(*args: Any, **kwargs: Any) -> None:
        parse(*args, **kwargs)
        raise SystemExit(0)

    argparse.ArgumentParser.parse_args = parse_and_end
