"""``python ...`` as a fork of the tests' process: saves the seconds that its imports take."""

import contextlib
import fcntl
import inspect
import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, TextIO, Tuple

import torch

# hydra asks for the stack of its callers. For every frame of a file that is no module's, inspect
# looks through all modules, unless it has found one before: for 13 ms each of runpy's.
inspect.modulesbyfile["<frozen runpy>"] = "runpy"

_SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


class Popen(subprocess.Popen):
    """:class:`subprocess.Popen`, whose child is a fork if the command is this Python's.

    The child runs a module (``-m``) or a script as its main program, with the pipes, folder and
    environment that it was given and all that the parent has imported; or ``main``, in the place
    of the command. Commands that it starts in turn are forks too. Not for what must see a fresh
    interpreter, and not for ``-c``.
    """

    def __init__(self, args: List[Any], env=None, preexec_fn=None, main=None, **others: Any):
        args = list(map(str, args))
        is_python = args[0] == sys.executable and args[1:2] != ["-c"]
        # A process that has used a GPU can't be forked.
        if main is None and (not is_python or torch.cuda.is_initialized()):
            super().__init__(args, env=env, preexec_fn=preexec_fn, **others)
            return

        def run_instead_of_exec() -> None:
            if preexec_fn is not None:
                preexec_fn()
            _run(main or partial(_main_program, args[1:]), os.environ if env is None else env)

        super().__init__(args, preexec_fn=run_instead_of_exec, **others)


def run(args: List[Any], **others: Any) -> "subprocess.CompletedProcess[bytes]":
    """:func:`subprocess.run` in a fork, with stdout and stderr together."""
    with Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **others) as process:
        output, _ = process.communicate()
    return subprocess.CompletedProcess(args, process.returncode, output)


def script(name: str, *arguments: Any, **others: Any) -> Tuple[int, str]:
    """(exit status, what it printed) of a script of this checkout."""
    done = run([sys.executable, _SCRIPTS / name, *arguments], **others)
    return done.returncode, done.stdout.decode("utf-8")


def end(process: "subprocess.Popen[Any]") -> None:
    """Leave nothing of it: neither the process, if it still runs, nor its pipes."""
    process.kill()
    with contextlib.suppress(BrokenPipeError), process:  # of what was written, and nobody read
        pass


# A process that has imported fairseq, and nothing of this plugin.
_ALONE = multiprocessing.get_context("forkserver")
_ALONE.set_forkserver_preload(["fairseq_cli.train", "fairseq_cli.eval_lm", "torch._dynamo"])


def run_alone(args: List[Any], env=None) -> "subprocess.CompletedProcess[bytes]":
    """As :func:`run`, in a fork of a process that knows of no plugin, as in a fresh interpreter."""
    with tempfile.NamedTemporaryFile() as output:
        environment = dict(os.environ if env is None else env)
        arguments = (list(map(str, args[1:])), environment, output.name)
        process = _ALONE.Process(target=_be_alone, args=arguments)
        process.start()
        process.join()
        return subprocess.CompletedProcess(args, process.exitcode, output.read())


def _be_alone(arguments: List[str], environment: Dict[str, str], output: str) -> None:
    assert "fairseq_bnce" not in sys.modules
    descriptor = os.open(output, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    _run(partial(_main_program, arguments), environment)


def _run(main: Callable[[], Any], environment: Dict[str, str]) -> None:
    """Be the child, to its end: what would follow is exec."""
    code = 1
    try:
        _let_go()
        _look_new(dict(environment))
        code = _exit_status(main)
    except BaseException:  # noqa: B036 - nothing may come back from here
        traceback.print_exc()
    finally:
        os._exit(_flushed(code))


def _let_go() -> None:
    """Of all open files, as exec would; the parent waits for it.

    Not by closing them: their Python objects, once collected, would close what has their numbers.
    """
    opened = os.open(os.devnull, os.O_RDWR)
    nothing = fcntl.fcntl(opened, fcntl.F_DUPFD, 3)
    os.close(opened)  # it may have taken the place of a standard one that is closed
    for descriptor in map(int, os.listdir("/dev/fd")):
        if descriptor > 2 and _is_open(descriptor):
            os.dup2(nothing, descriptor)


def _is_open(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        os.fstat(descriptor)
        return True
    return False


def _look_new(environment: Dict[str, str]) -> None:
    # CUDA works in no fork of a process that has used it, and fairseq asks for it under --cpu too.
    torch.cuda.is_available = lambda: False
    # torch would format the stack for each kind of device that there may be.
    torch.manual_seed = torch.default_generator.manual_seed
    os.environ.clear()
    os.environ.update(environment)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = _stream(0, "r", encoding)
    sys.stdout = _stream(1, "w", encoding)
    sys.stderr = _stream(2, "w", encoding, errors="backslashreplace", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # pytest's handlers and levels; fairseq's commands set up their own.
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)
    subprocess.Popen = Popen


def _stream(descriptor: int, mode: str, encoding: str, **options: Any) -> Optional[TextIO]:
    if not _is_open(descriptor):
        return None
    return open(descriptor, mode, encoding=encoding, closefd=False, **options)


def _exit_status(main: Callable[[], Any]) -> int:
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: B036 - whatever ends the command is its result
        traceback.print_exc()
        return 1
    return 0


def _main_program(arguments: List[str]) -> None:
    if arguments[0] == "-u":  # torchrun's; all is flushed in the end
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        # Else runpy warns, where errors are printed, that it is imported already.
        sys.modules.pop(arguments[1], None)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


def _flushed(code: int) -> int:
    """The exit status; that of an interpreter where nobody reads the output."""
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except OSError:
        return 120
    return code
