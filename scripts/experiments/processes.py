"""Run commands one at a time, and measure their time and memory."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

STARTED = "=== started "
_CALL = Path(__file__).with_name("call.py")
_ERROR = re.compile(r"^(?:[\w.]+(?:Error|Exception|Interrupt)\b.*|.*\berror: .*)$")
_LONGEST = 300  # characters of an error line in a table


class CommandFailed(RuntimeError):
    """A command failed, or left no result; the message is its last error line."""


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        status: exit status, negative for the signal that killed it.
        peak_bytes: its largest resident set.
        seconds: wall-clock time, from start to exit.
        cpu_seconds: user and system time, which other processes lengthen less.
    """

    status: int
    peak_bytes: int
    seconds: float
    cpu_seconds: float


def run(command: Sequence[Any], log: Path, threads: int, printed: Optional[Path] = None) -> Ended:
    """Run ``command`` to its end, its output appended to ``log`` after a line with the command.

    Args:
        printed: receives standard output instead of ``log``.

    Raises:
        CommandFailed: with the last error line, if the exit status is not 0.
    """
    command = list(map(str, command))
    log.parent.mkdir(parents=True, exist_ok=True)
    # With several GPUs, each process of fairseq would read, and report on, a part of the data.
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    own = {"OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": gpu}
    with log.open("a") as stream, (printed or log).open("w" if printed else "a") as output:
        stream.write(f"{STARTED}{json.dumps(command)}\n")
        stream.flush()
        ended = _wait(command, stdout=output, stderr=stream, env={**os.environ, **own})
    if ended.status:
        raise CommandFailed(f"{_reason(ended.status, log)} (see {log.name})")
    return ended


def call(name: str, out: Path, threads: int, **arguments: Any) -> Tuple[Any, Ended]:
    """Call a function in a process of its own, by call.py.

    Args:
        name: MODULE.FUNCTION.
        out: file for what it returns; a log stands beside it.
        arguments: of the function; paths arrive as texts.

    Returns:
        what it returned, and how the process ended.
    """
    given = json.dumps(arguments, default=str)
    ended = run([sys.executable, _CALL, name, out, given], out.with_suffix(".log"), threads)
    return json.loads(out.read_text(encoding="utf-8")), ended


def last_attempt(log: Path) -> List[str]:
    """Return the lines of the last command in ``log``."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return text.rpartition(STARTED)[2].splitlines()[1:]


def _wait(command: List[str], **streams: Any) -> Ended:
    start = time.perf_counter()
    child = subprocess.Popen(command, **streams)
    try:
        _, status, usage = os.wait4(child.pid, 0)  # RUSAGE_CHILDREN would add other children
    except BaseException:  # Ctrl-C too: no training goes on behind the caller's back
        child.kill()
        child.wait()
        raise
    signalled = os.WIFSIGNALED(status)
    child.returncode = -os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)
    # Linux counts what we held when we started the child as the child's own, so this process must
    # stay small: it imports no torch.
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    seconds, cpu_seconds = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return Ended(child.returncode, peak_bytes, seconds, cpu_seconds)


def _reason(status: int, log: Path) -> str:
    lines = [line.strip() for line in last_attempt(log) if line.strip()]
    errors = [line for line in lines if _ERROR.match(line)]
    if status < 0:  # torch's threads may abort a process that an exception ends
        why = f" after {errors[-1]}" if errors else ""
        return f"killed by signal {-status}{why}"[:_LONGEST]
    return (errors or lines or [f"exit status {status}"])[-1][:_LONGEST]
