"""What two machines exchange in an update, and how long an update takes on a slow line."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from .. import command, machine
from ..measures import meter
from ..workshop import Workshop, make_data
from .vocabulary import RECIPES

MACHINES = ("bnce-a", "bnce-b")
_ADDRESS = "10.77.0.{}"
_PORT = 29577
_WARM = 2  # updates before those that are timed
_MOST, _SECONDS = 20, 10  # timed updates at a rate: as many as fit into the seconds, at least one
_RECIPE = RECIPES["lstm200"]


def measure(options: Any) -> Dict[str, Any]:
    """Measure all systems that have not been measured."""
    if os.geteuid():
        raise command.UsageError("required root, who may make network namespaces")
    shop, runs = Workshop(options), []
    for vocab, system in itertools.product(options.vocab, options.systems):
        data = make_data(shop.out / "data" / f"V{vocab}", 1, vocab=vocab, tokens=400_000)
        measured = shop.once(f"{system}-V{vocab}", partial(_train, shop, system, vocab, data))
        runs.append({"system": system, "vocab": vocab, "rates": measured})
    return {"model": _RECIPE._asdict(), "runs": runs}


@contextlib.contextmanager
def _line() -> Iterator[None]:
    """Join two network namespaces by a line."""
    _remove()
    for name in MACHINES:
        _ip("netns", "add", name)
    pair = ["type", "veth", "peer", "name", "line", "netns", MACHINES[1]]
    _ip("link", "add", "line", "netns", MACHINES[0], *pair)
    for number, name in enumerate(MACHINES, 1):
        _ip("-n", name, "addr", "add", f"{_ADDRESS.format(number)}/24", "dev", "line")
        for device in ("lo", "line"):
            _ip("-n", name, "link", "set", device, "up")
    try:
        yield
    finally:
        _remove()


def _remove() -> None:
    for name in MACHINES:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _set_rate(gigabits: float) -> None:
    """Limit both directions of the line."""
    rate = f"{gigabits:g}gbit"
    burst = str(max(64_000, int(gigabits * 1e9 / 8 / 250)))  # bytes: what 4 ms let through
    for name in MACHINES:
        limit = ["root", "tbf", "rate", rate, "burst", burst, "latency", "50ms"]
        tc = ["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "line"]
        subprocess.run([*tc, *limit], check=True)


def _sent_bytes() -> int:
    path = "/sys/class/net/line/statistics/tx_bytes"
    return int(subprocess.check_output(["ip", "netns", "exec", MACHINES[0], "cat", path]))


def _train(shop: Workshop, system: str, vocab: int, data: Path) -> List[Dict[str, float]]:
    """Train on two machines, and measure the updates at each rate."""
    flags = [*_RECIPE.flags(), "--cpu", *_RECIPE.system_flags(system, vocab)]
    flags += ["--distributed-world-size", "2", "--distributed-backend", "gloo"]
    flags += ["--distributed-init-method", f"tcp://{_ADDRESS.format(1)}:{_PORT}"]
    flags += ["--distributed-no-spawn", "--ddp-backend", "legacy_ddp", "--log-interval", "1"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_line())
        ranks: List[Any] = []
        for rank, name in enumerate(MACHINES):
            inside = ["ip", "netns", "exec", name, sys.executable, "-m", "fairseq_cli.train"]
            own = ["--user-dir", machine.PLUGIN, *flags, "--distributed-rank", rank]
            full = list(map(str, [*inside, data, *own]))
            variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "line"}
            with shop.at("logs", f"{system}-V{vocab}-rank{rank}.err").open("w") as errors:
                pipes: Any = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
                ranks.append(subprocess.Popen(full, env=variables, **pipes))
            stack.callback(ranks[-1].wait)
            stack.callback(ranks[-1].kill)
        return list(_measured(ranks[0], shop.options.rates))


def _measured(first: Any, rates: Sequence[float]) -> Iterator[Dict[str, float]]:
    """Yield seconds and bytes of an update at each rate, as the first rank logs its updates."""
    wait = partial(_next, (line for line in first.stdout if "| train_inner |" in line))
    for _ in range(_WARM):
        wait()
    for rate in rates:
        _set_rate(rate)
        start, sent = time.monotonic(), _sent_bytes()
        count = len(meter.repeat(wait, _MOST, _SECONDS, least=1))
        seconds, sent = time.monotonic() - start, _sent_bytes() - sent
        yield {
            "gigabits": rate,
            "updates": count,
            "seconds": seconds / count,
            "bytes": sent / count,
        }


def _next(updates: Iterator[str]) -> None:
    """Wait for the next update."""
    if next(updates, None) is None:
        raise command.UsageError("the training ended before it was measured: see logs/")
