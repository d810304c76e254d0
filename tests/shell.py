"""A shell for the documentation's commands: bash, with our commands as forks of the tests' process.

Each of our commands is a small program of that name on bash's path. It hands its arguments, its
folder and its standard streams over to this process and ends with the status that comes back. So
pipes, redirections, loops and arrays are bash's own, and no command imports torch again.
"""

import argparse
import contextlib
import io
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import forks
from experiments.recipes import RECIPES
from fairseq import options
from tools import PLUGIN, write_program

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

_CLIENT = """import os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = "\\0".join([os.getcwd(), os.path.basename(sys.argv[0]), *sys.argv[1:]])
    socket.send_fds(server, [request.encode()], [0, 1, 2])
    status = server.recv(8)
sys.exit(int(status or 1))
"""


class Result(NamedTuple):
    """Of a text that bash ran: its exit status and all that was printed."""

    status: int
    output: str


class Shell:
    """Runs commands in a folder, which gets the programs that stand for ours.

    Args:
        folder: where they run; ``scripts/NAME`` and ``--user-dir fairseq_bnce`` are found there.
        further: arguments that are appended to those of a command, by its name.
    """

    def __init__(self, folder: Path, further: Optional[Dict[str, Sequence[str]]] = None):
        self._folder = folder
        self._further = further or {}
        # One of Linux's abstract names: a path may have no more than 107 bytes.
        self._address = f"\0fairseq-bnce-{uuid.uuid4().hex}"
        for place, names in (("commands", [*MODULES, "fairseq-bnce"]), ("scripts", SCRIPTS)):
            (folder / place).mkdir()
            for name in names:
                self._write_client(folder / place / name)
        (folder / "fairseq_bnce").symlink_to(ROOT / "fairseq_bnce")

    def run(self, text: str) -> Result:
        """Run it as a script that ends with the first command that fails."""
        path = f"{self._folder / 'commands'}:/usr/bin:/bin"
        return self._bash(text, path, ["-e", "-u", "-o", "pipefail"])

    def _write_client(self, path: Path) -> None:
        write_program(path, _CLIENT.format(address=self._address))

    def _bash(self, text: str, path: str, flags: Sequence[str]) -> Result:
        log = self._folder / "commands" / "log"
        with socket.socket(socket.AF_UNIX) as listener, open(log, "wb") as output:
            listener.bind(self._address)
            listener.listen()
            listener.settimeout(0.02)
            streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            command = ["/bin/bash", *flags, "-c", text]
            with subprocess.Popen(command, cwd=self._folder, env={"PATH": path}, **streams) as bash:
                try:
                    self._serve(listener, bash)
                finally:
                    bash.kill()  # after an error here, it would wait for an answer for ever
        return Result(bash.returncode, log.read_text(encoding="utf-8", errors="replace"))

    def _serve(self, listener: socket.socket, bash: "subprocess.Popen[bytes]") -> None:
        running: List[Tuple[socket.socket, Any]] = []
        while bash.poll() is None:
            with contextlib.suppress(socket.timeout):
                client = listener.accept()[0]
                running.append((client, self._answer(client)))
            running = [one for one in running if not _has_ended(*one)]

    def _answer(self, client: socket.socket) -> Any:
        """Start what a client asks for: something with a poll()."""
        request, streams, *_ = socket.recv_fds(client, 1 << 20, 3)
        folder, name, *arguments = request.decode().split("\0")
        try:
            return self._start(folder, name, arguments, streams)
        finally:
            for stream in streams:
                os.close(stream)

    def _start(self, folder: str, name: str, arguments: List[str], streams: List[int]) -> Any:
        command = [*_program(name), *arguments, *self._further.get(name, [])]
        pipes = dict(zip(("stdin", "stdout", "stderr"), streams))
        return forks.Popen(command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


class Parsing(Shell):
    """Our commands parse their arguments and do nothing more; others do nothing at all."""

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.refused: List[str] = []
        self.parsed = 0

    def run(self, text: str) -> Result:
        """What the parsers refuse is in ``refused``."""
        return self._bash(
            f"command_not_found_handle() {{ :; }}\n{text}", str(self._folder / "commands"), []
        )

    def _start(self, folder: str, name: str, arguments: List[str], streams: List[int]) -> Any:
        arguments = [argument for argument in arguments if argument != "..."]
        errors = "".join(errors_of(name, arguments, folder))
        self.parsed += 1
        if errors:
            self.refused.append(f"{name} {' '.join(arguments)}\n{errors}")
        return argparse.Namespace(poll=lambda: int(bool(errors)))


def errors_of(name: str, arguments: List[str], folder: str) -> List[str]:
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


def _program(name: str) -> List[str]:
    if name in MODULES:
        return [sys.executable, "-m", MODULES[name]]
    return [sys.executable, str(ROOT / "scripts" / name)]


def _has_ended(client: socket.socket, process: Any) -> bool:
    status = process.poll()
    if status is None:
        return False
    with client, contextlib.suppress(OSError):  # a client may have been killed, as by `| head`
        client.sendall(str(status % 256).encode())
    return True
