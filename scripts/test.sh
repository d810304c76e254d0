#!/usr/bin/env bash
# Set up where needed and run the tests, in today's environment (.venv) and in the stock one
# (.venv-stock: Python 3.10, fairseq 0.12.2) side by side.
#
#   scripts/test.sh                       all but the slow tests
#   scripts/test.sh -k losses             arguments go to pytest
#   PYTHON=python3.12 scripts/test.sh     with another Python in .venv
#   STOCK=0 scripts/test.sh               without the stock environment
#   COVERAGE=1 scripts/test.sh            and which lines no test in .venv reaches, in half as long again
#   SLOW=1 scripts/test.sh                the slow tests, too, in .venv
#   STOCK=all scripts/test.sh             every test that the stock environment can run
#   DOCS=1 scripts/test.sh                build the documentation, too (scripts/docs.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
unset PYTHONPATH PYTHONHOME # another environment's packages

logs=$(mktemp -d)
setup= others=
# What is in the background has not heard of Ctrl-C.
end() {
  local process
  for process in $setup $others; do
    pkill -P "$process" || true
    kill "$process" || true
  done 2>/dev/null
  rm -rf "$logs"
}
trap end EXIT
export COVERAGE_FILE=$logs/coverage

# One process at a time of each: it has one thread, and its commands run in forks.
run_tests() {
  local venv=$1 runner=(-m pytest)
  shift
  if [ "$venv" = .venv ] && [ -n "${COVERAGE:-}" ]; then
    runner=(-m coverage run -m pytest)
  fi
  echo "test: pytest $* in $venv"
  "$venv/bin/python" "${runner[@]}" -q -p no:cacheprovider "$@"
}

# Files whose tests meet what differs between versions of Python, torch and fairseq.
compatibility=(tests/test_{architectures,autograd,bands,checkpoint_programs,criterions,diagnose,distributed}.py)
compatibility+=(tests/test_{eval_lm,flags,hydra,import,losses,models,optimizers,other_tasks,restoring,row_sparse}.py)
compatibility+=(tests/test_{scoring,scoring_checkpoints,scoring_incremental,streams,training}.py)

# The compatibility set, less what is marked modern; all such tests with STOCK=all or arguments.
stock_tests() {
  [ -x .venv-stock/bin/python ] || return 0
  local status=0 chosen=("${compatibility[@]}")
  if [ $# -gt 0 ] || [ "${STOCK:-1}" = all ]; then
    chosen=(--ignore=tests/scripts)
  fi
  run_tests .venv-stock "${chosen[@]}" -m "not slow and not modern and not gpu and not decoders" "$@" || status=$?
  # 5: none of the tests that the arguments name is for this environment.
  [ "$status" = 5 ] && [ $# -gt 0 ] || return "$status"
}

# What runs in .venv. Arrays are never empty: a bash before 4.4 takes such a one for a variable that is
# not set.
choose_tests() {
  local marks="not gpu and not decoders"
  [ -n "${SLOW:-}" ] || marks="$marks and not slow"
  venv_tests=(-m "$marks")
  beside_stock=(tests/scripts tests/test_{docs,reduction}.py)
  # Before Python 3.11 the recipe of .venv is the stock one.
  if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    venv_tests=(--ignore=tests/scripts -m "$marks and not modern")
    beside_stock=("${beside_stock[@]:1}")
  fi
}

# What goes beside the tests of .venv, their output to come when they are done.
beside() {
  local status=0
  [ "${STOCK:-1}" = 0 ] || stock_tests "$@" || status=$?
  # The stock environment has less to do: with these, both take as long.
  [ $# -gt 0 ] || run_tests .venv "${venv_tests[@]}" "${beside_stock[@]}" || status=$?
  return "$status"
}

# Style, types and, where asked for, documentation.
check_sources() {
  local status=0
  if [ -x .venv/bin/ruff ]; then
    .venv/bin/ruff check . && .venv/bin/ruff format --check . || status=1
  fi
  if [ -x .venv/bin/mypy ]; then
    .venv/bin/mypy || status=1
  fi
  [ "${DOCS:-0}" = 0 ] || scripts/docs.sh || status=1
  return "$status"
}

status=0
if [ "${STOCK:-1}" != 0 ]; then
  echo "test: both environments are set up side by side (minutes, the first time)"
  scripts/setup_env.sh stock &
  setup=$!
fi
scripts/setup_env.sh
if [ -n "$setup" ]; then
  wait "$setup" || status=$?
  setup=
fi
choose_tests
beside "$@" >"$logs/beside" 2>&1 &
others=$!
check_sources || status=1
if [ $# -gt 0 ]; then
  run_tests .venv "${venv_tests[@]}" "$@" || status=$?
else
  run_tests .venv "${venv_tests[@]}" "${beside_stock[@]/#/--ignore=}" || status=$?
fi
echo "test: waiting for the others"
wait "$others" || status=$?
others=
cat "$logs/beside"
if [ -n "${COVERAGE:-}" ]; then
  # Processes that tests kill, or give a full disk, leave damaged files: the others are combined.
  .venv/bin/python -m coverage combine -q 2>/dev/null || true
  .venv/bin/python -m coverage report
fi
exit "$status"
