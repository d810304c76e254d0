"""Which Python runs a script of this checkout: one with torch and fairseq, if there is one.

A script that needs them, or the plugin, imports this module first: ``import environment``. So
``./scripts/x.py`` works whatever Python the shell finds first.
"""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("torch", "fairseq")


def enter(required: bool = True) -> None:
    """Start this command anew with the checkout's own Python, if this one lacks torch or fairseq.

    The plugin that it imports is this checkout's.

    Args:
        required: whether to end with a message where no such Python is; else the script goes on,
            and does what it can.
    """
    sys.path.insert(1, str(ROOT))  # behind the folder of the script
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return
    pythons = (ROOT / venv / "bin" / "python" for venv in (".venv", ".venv-stock"))
    python = next((one for one in pythons if os.access(one, os.X_OK)), None)
    if python is not None and Path(sys.prefix).resolve() != python.parents[1].resolve():
        sys.stdout.flush()
        os.execv(str(python), [str(python), *sys.argv])
    if required:
        sys.exit(
            f"{Path(sys.argv[0]).name}: error: required torch and fairseq, got {sys.executable} "
            f"without them: {ROOT / 'scripts' / 'setup_env.sh'} makes an environment that has them"
        )


if Path(sys.argv[0]).resolve().parent == ROOT / "scripts" and sys.argv[0].endswith(".py"):
    enter()
