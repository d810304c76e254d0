"""scripts/examples/next_item.py, on a small log."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools import PLUGIN


def test_next_item(tmp_path):
    """Each loss finds the next item almost as often as the full softmax."""
    script = Path(PLUGIN).parent / "scripts" / "examples" / "next_item.py"
    small = ["--items", "1000", "--sessions", "3000", "--out", tmp_path / "found.json"]
    # Several threads wait for each other when other tests are busy.
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, script, *small], check=True, env=one_thread)
    found = json.loads((tmp_path / "found.json").read_text("utf-8"))["losses"]
    full = found.pop("cross_entropy")["recall"]
    assert full > 0.3 and len(found) == 3
    assert all(one["recall"] > 0.9 * full for one in found.values())
