"""Which Python runs a script of this checkout: one with torch and fairseq, if there is one.

A script that needs them, or the plugin, imports this module first: ``import environment``. So
``./scripts/x.py`` works whatever Python the shell finds first.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Optional

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
    python = own_python()
    if python is not None:
        arguments = [str(python), *sys.argv]
        sys.stdout.flush()
        os.execv(arguments[0], arguments)
    if required:
        sys.exit(
            f"{Path(sys.argv[0]).name}: error: required torch and fairseq, got {sys.executable} "
            f"without them: {ROOT / 'scripts' / 'setup_env.sh'} makes an environment that has them"
        )


def own_python() -> Optional[Path]:
    """Return the Python of ``.venv`` or ``.venv-stock``; None inside of it, or without any."""
    for folder in (ROOT / ".venv", ROOT / ".venv-stock"):
        python = folder / "bin" / "python"
        if os.access(python, os.X_OK):
            return None if Path(sys.prefix).resolve() == folder.resolve() else python
    return None


if Path(sys.argv[0]).resolve().parent == ROOT / "scripts" and sys.argv[0].endswith(".py"):
    enter()
