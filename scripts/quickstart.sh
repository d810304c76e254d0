#!/usr/bin/env bash
# Set up .venv where needed, train B-NCE on a corpus that needs no download, and print the result.
#
#   scripts/quickstart.sh                      everything goes into ./quickstart-run
#   PYTHON=python3.12 scripts/quickstart.sh    with another Python
#   scripts/quickstart.sh --out DIR -- FLAGS   further flags of fairseq-train
set -euo pipefail
# Another environment's packages.
unset PYTHONPATH PYTHONHOME
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup_env.sh"
exec "$root/.venv/bin/python" "$root/scripts/quickstart.py" "$@"
