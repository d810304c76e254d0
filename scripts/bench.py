#!/usr/bin/env python3
"""Make a result of docs/results: measure, write OUT/NAME.json, and show its tables.

    bench.py --help
    bench.py NAME --help

experiments/benches.yaml has the flags, tables and files of every NAME, and experiments/benches what
they do. A result has the machine, and the flags that are no paths.
"""

import argparse
import importlib
import json
import os
from pathlib import Path
from typing import Any, Dict, Sequence

import environment  # noqa: F401
from experiments import command, machine, report
from rendering.tables import TABLES


def main(arguments: Sequence[str]) -> int:
    """Return the exit status: 1 if a run failed."""
    benches = report.load("benches")
    options = _parser(benches).parse_args(arguments)
    about, kept = benches[options.name], vars(options).copy()
    module = importlib.import_module(f"experiments.benches.{options.name.replace('-', '_')}")
    options.out.mkdir(parents=True, exist_ok=True)
    found = module.measure(options)
    if not isinstance(found, dict):
        return 0
    flags = {name: value for name, value in kept.items() if _is_plain(value)}
    where = {**machine.record(), "load": os.getloadavg()}
    result = {"machine": where, "flags": flags, **found}
    path = options.out / f"{about.get('file', options.name)}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for table in about.get("tables", []):
        print("\n".join(TABLES[table](result)), end="\n\n")
    print(f"written: {path}")
    return int(any("failed" in run for run in found.get("runs", [])))


def _parser(benches: Dict[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=command.HelpFormatter)
    names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name, about in benches.items():
        text = about["about"]
        own = names.add_parser(
            name, help=text.split(": ")[0], description=text, formatter_class=command.HelpFormatter
        )
        command.add_common(own, about.get("device", False), about.get("out"))
        for kind in (int, float, Path):  # benches.yaml calls them int, float and path
            own.register("type", kind.__name__.lower(), kind)
        for flag, given in about.get("flags", {}).items():
            own.add_argument(flag, **given)
    return parser


def _is_plain(value: Any) -> bool:
    some = value if isinstance(value, list) else [value]
    return not any(isinstance(one, Path) or "/" in str(one) for one in some)


if __name__ == "__main__":
    command.start(main)
