#!/usr/bin/env bash
# Set up where needed and run the tests, in today's environment (.venv) and in the stock one
# (.venv-stock: Python 3.10, fairseq 0.12.2) side by side.
#
#   scripts/test.sh                       all but the slow tests
#   scripts/test.sh -k losses             arguments go to pytest
#   PYTHON=python3.12 scripts/test.sh     with another Python in .venv
#   STOCK=0 scripts/test.sh               without the stock environment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# One process an environment: each has one thread, and its commands run in forks.
run_tests() {
  local venv=$1
  shift
  echo "test: pytest in $venv"
  "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
}

# The stock environment's set-up and tests: of all that meets fairseq or torch, less the scripts and
# what is marked modern. Their output comes when they are done.
stock_tests() {
  scripts/setup_env.sh stock
  [ -x .venv-stock/bin/python ] || return 0
  run_tests .venv-stock --ignore=tests/scripts -m "not slow and not modern and not gpu" "$@"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
stock=
if [ "${STOCK:-1}" != 0 ]; then
  echo "test: the stock environment is set up and tested in the background"
  stock_tests "$@" >"$log" 2>&1 &
  stock=$!
fi

status=0
scripts/setup_env.sh
if [ -x .venv/bin/ruff ]; then
  .venv/bin/ruff check . && .venv/bin/ruff format --check . || status=1
fi
run_tests .venv "$@" || status=$?
if [ -n "$stock" ]; then
  echo "test: waiting for the stock environment"
  wait "$stock" || status=$?
  cat "$log"
fi
exit "$status"
