"""What two machines exchange in an update, and how long an update takes on a slow line."""

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

_LINE = Path(__file__).with_suffix(".sh")
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


def _line(*arguments: Any) -> bytes:
    return subprocess.check_output([_LINE, *map(str, arguments)])


def _train(shop: Workshop, system: str, vocab: int, data: Path) -> List[Dict[str, float]]:
    """Train on two machines, and measure the updates at each rate."""
    flags = [data, "--user-dir", machine.PLUGIN, *_RECIPE.flags(), "--cpu"]
    flags += [*_RECIPE.system_flags(system, vocab), "--distributed-world-size", "2"]
    flags += ["--distributed-init-method", "tcp://10.77.0.1:29577", "--distributed-no-spawn"]
    flags += ["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", "--log-interval", "1"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "line"}
    with contextlib.ExitStack() as stack:
        stack.callback(_line, "down")
        _line("up")
        ranks: List[Any] = []
        for rank, name in enumerate(("bnce-a", "bnce-b")):
            inside = ["ip", "netns", "exec", name, sys.executable, "-m", "fairseq_cli.train"]
            full = [*inside, *map(str, [*flags, "--distributed-rank", rank])]
            with shop.at("logs", f"{system}-V{vocab}-rank{rank}.err").open("w") as errors:
                pipes: Any = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
                ranks.append(subprocess.Popen(full, env=variables, **pipes))
            stack.callback(ranks[-1].wait)
            stack.callback(ranks[-1].kill)
        return list(_measured(ranks[0], shop.options.rates))


def _measured(first: Any, rates: Sequence[float]) -> Iterator[Dict[str, float]]:
    """Yield seconds and bytes of an update at each rate, as the first rank logs its updates."""
    updates = (line for line in first.stdout if "| train_inner |" in line)

    def wait() -> None:
        if next(updates, None) is None:
            raise command.UsageError("the training ended before it was measured: see logs/")

    for _ in range(_WARM):
        wait()
    for rate in rates:
        _line("rate", rate)
        start, sent = time.monotonic(), int(_line("sent"))
        count = len(meter.repeat(wait, _MOST, _SECONDS, least=1))
        seconds, total = time.monotonic() - start, int(_line("sent")) - sent
        each = {"seconds": seconds / count, "bytes": total / count}
        yield {"gigabits": rate, "updates": count, **each}
