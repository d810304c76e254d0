#!/usr/bin/env python3
"""Call a function of these scripts in a process of its own: call.py MODULE.FUNCTION OUT ARGUMENTS.

ARGUMENTS is a JSON object; the file OUT gets what the function returns. So the experiments, whose
children's peak memory is measured, import no torch; and what is done to a process, or to the GPU,
is over with it.
"""

import importlib
import json
import sys
from pathlib import Path

sys.path[:0] = map(str, Path(__file__).resolve().parents[1:3])  # scripts/, and the checkout

if __name__ == "__main__":
    name, out, arguments = sys.argv[1:]
    module, _, function = name.rpartition(".")
    found = getattr(importlib.import_module(module), function)(**json.loads(arguments))
    Path(out).write_text(json.dumps(found) + "\n", encoding="utf-8")
