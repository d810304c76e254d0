#!/usr/bin/env bash
# Set up the Python environments of this checkout, from a package index, once.
#
#   scripts/setup_env.sh          .venv, from ${PYTHON:-python3}: 3.11 to 3.13 get today's torch and
#                                 fairseq-fixed, 3.8 to 3.10 get stock fairseq 0.12.2. Without a C++
#                                 compiler (${CXX:-c++}) 3.11 and 3.12 get ve-fairseq on Linux, x86-64:
#                                 a third party's wheels
#   scripts/setup_env.sh stock    .venv-stock: stock fairseq 0.12.2 on Python 3.10, looked for in
#                                 PYTHON310=, among pyenv's versions, then as python3.10 on the PATH.
#                                 Where there is none, it says so and exits 0 without .venv-stock:
#                                 a caller tests for .venv-stock/bin/python
#
# A second run sets nothing up. An interrupted one, or a changed recipe, starts that folder afresh.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USER=0
# Another environment's packages; and with CUDA_HOME fairseq compiles kernels that nothing here uses.
unset PYTHONPATH PYTHONHOME CUDA_HOME

# A line is one `pip install`; the order matters. fairseq-fixed compiles against the torch that is
# there already, so without build isolation. torch is named again beside each fairseq: an old
# torchaudio, which fairseq asks for, would put another one in its place. pyctcdecode asks for a numpy
# below 2, and runs with later ones. flashlight-text has no wheels for Python 3.13.
modern_recipe="torch==2.13.0 numpy cython setuptools<81 wheel
--no-build-isolation fairseq-fixed==0.12.3.1 torch==2.13.0
sacremoses tqdm pooch matplotlib jiwer pytest pytest-timeout coverage==7.* ruff==0.17.* mypy==2.4.*
--no-deps flashlight-text==0.0.7;python_version<'3.13' pyctcdecode==0.5.0 pygtrie==2.5.0
--no-deps kenlm==0.3.0"

# A third party's build of fairseq, and no kenlm, which comes as source. CI tests fairseq-fixed.
wheels_recipe=${modern_recipe/--no-build-isolation fairseq-fixed==0.12.3.1/ve-fairseq==0.12.3}
wheels_recipe=${wheels_recipe%$'\n'*kenlm*}

# The reverse: stock fairseq's source package lacks a file that it compiles wherever torch can be
# imported, so it builds in isolation. Its omegaconf 2.0.6 has metadata that pip 24.1 refuses. The
# setuptools of Python 3.8 and 3.9 is too old to read this package's pyproject.toml.
stock_recipe="pip==23.0
torch==1.13.1 numpy==1.23.5 wheel setuptools>=61,<81
fairseq==0.12.2 torch==1.13.1 numpy==1.23.5
sacremoses tqdm pooch matplotlib jiwer pytest pytest-timeout"

folder= # two may be set up at once, with their lines mixed
say() { printf 'setup_env: %s%s\n' "${folder:+$folder: }" "$*"; }

fail() {
  say "$*" >&2
  exit 1
}

# step DESCRIPTION COMMAND...: say what is done, and on failure what was not.
step() {
  local description=$1 start=$SECONDS
  shift
  say "$description"
  "$@" </dev/null || fail "FAILED: $description"
  say "  done in $((SECONDS - start)) s: $description"
}

# The X.Y of an interpreter; fails where it does not run.
python_version() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

# The interpreter behind a virtual environment's (a folder must not be built from itself).
base_python() {
  "$1" -c 'import os, sys
base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
print(base if os.access(base, os.X_OK) else sys.executable)'
}

needs_wheels() {
  local compiler=${CXX:-c++} # with options, maybe
  ! command -v "${compiler%% *}" >/dev/null && [ "$(uname -sm)" = "Linux x86_64" ]
}

recipe_for() {
  case $1 in
    3.8 | 3.9 | 3.10) echo "$stock_recipe" ;;
    3.1[12]) if needs_wheels; then echo "$wheels_recipe"; else echo "$modern_recipe"; fi ;;
    3.13) echo "$modern_recipe" ;;
    *) fail "Python 3.8 to 3.13 is required, but ${PYTHON:-python3} is Python $1 (choose another with PYTHON=)" ;;
  esac
}

# What a finished environment's stamp holds: all that it was made from.
stamp_text() {
  printf 'Python %s in %s\n%s\n' "$1" "$2" "$(recipe_for "$1")"
}

is_ready() {
  local venv=$1 version=$2
  [ "$(cat "$venv/.recipe" 2>/dev/null)" = "$(stamp_text "$version" "$venv")" ] &&
    [ "$(python_version "$venv/bin/python")" = "$version" ]
}

# An old folder is moved before it is removed: an interrupted removal would take its stamp first.
clear_old() {
  local venv=$1
  rm -rf "$venv.removed"
  [ -e "$venv" ] || return 0
  [ -f "$venv/.recipe" ] || fail "$venv is there, but was not made by this script: move it away first"
  mv "$venv" "$venv.removed"
  rm -rf "$venv.removed"
}

build() {
  local venv=$1 version=$2 python=$3 arguments
  clear_old "$venv"
  mkdir -p "$venv"
  echo unfinished >"$venv/.recipe"
  step "make $venv with $python (on Debian and Ubuntu this needs the package python3-venv)" \
    "$python" -m venv "$venv"
  # Most fairseqs come as source: they need a C++ compiler and Python's header files.
  [ "$(recipe_for "$version")" != "$wheels_recipe" ] ||
    say "no C++ compiler: fairseq from the wheels of ve-fairseq, a third party's build"
  while read -r -a arguments; do
    step "pip install ${arguments[*]}" "$venv/bin/python" -m pip install --quiet "${arguments[@]}"
  done <<<"$(recipe_for "$version")"
  stamp_text "$version" "$venv" >"$venv/.recipe"
}

# Where fairseq lies, and looks for --user-dir NAME: beside its own package.
site_packages() {
  echo "$1/lib/python$2/site-packages"
}

is_installed() {
  local mark="$1/.installed"
  [ -f "$mark" ] && [ ! "$root/setup.py" -nt "$mark" ] && [ ! "$root/pyproject.toml" -nt "$mark" ] &&
    [ -x "$1/bin/fairseq-bnce" ] && [ -e "$(site_packages "$1" "$2")/fairseq_bnce/__init__.py" ]
}

# What fairseq does about --user-dir fairseq_bnce, here in a folder where no such folder is.
check_user_dir='import argparse, logging, os, sys
logging.disable(logging.INFO)
os.chdir("/")
import torch
from fairseq.utils import import_user_module
import_user_module(argparse.Namespace(user_dir="fairseq_bnce"))
import fairseq_bnce, hydra_plugins.fairseq_bnce
assert os.path.samefile(fairseq_bnce.__path__[0], sys.argv[1]), fairseq_bnce.__path__'

# Editable: the sources are used where they are. Redone when what pip reads has changed. The link is
# for fairseq, which does not ask Python where a --user-dir is.
install_package() {
  local venv=$1 version=$2
  is_installed "$venv" "$version" && return
  step "install this package into $venv" \
    "$venv/bin/python" -m pip install --quiet --no-deps --no-build-isolation -e "$root"
  step "link it beside fairseq, so that --user-dir fairseq_bnce is found from any folder" \
    ln -sfn "$root/fairseq_bnce" "$(site_packages "$venv" "$version")/fairseq_bnce"
  step "import it by that name" "$venv/bin/python" -c "$check_user_dir" "$root/fairseq_bnce"
  step "look for its command" test -x "$venv/bin/fairseq-bnce"
  touch "$venv/.installed"
}

# set_up FOLDER VERSION PYTHON: one at a time, of two quickstarts, say.
set_up() {
  local venv=$root/$1 version=$2 python=$3
  folder=$1
  if command -v flock >/dev/null; then
    exec 9>"$venv.lock"
    flock -n 9 || step "wait for another set-up of $1" flock 9
  fi
  is_ready "$venv" "$version" || build "$venv" "$version" "$python"
  install_package "$venv" "$version"
  exec 9>&-
  say "ready (Python $version)"
}

find_python310() {
  local candidate
  if [ -n "${PYTHON310:-}" ]; then
    [ "$(python_version "$PYTHON310")" = 3.10 ] ||
      fail "PYTHON310: a Python 3.10 is required, but $PYTHON310 is none that runs"
    echo "$PYTHON310"
    return
  fi
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10*/bin/python python3.10; do
    if [ "$(python_version "$candidate")" = 3.10 ]; then
      echo "$candidate"
      return
    fi
  done
}

set_up_default() {
  local python=${PYTHON:-python3} version
  version=$(python_version "$python") || fail "no Python: $python does not run (choose one with PYTHON=)"
  recipe_for "$version" >/dev/null
  set_up .venv "$version" "$(base_python "$python")"
}

set_up_stock() {
  local venv=$root/.venv-stock python
  python=$(find_python310)
  if [ -n "$python" ] || is_ready "$venv" 3.10; then
    set_up .venv-stock 3.10 "$python"
  else
    clear_old "$venv"
    say "no Python 3.10 (PYTHON310=, pyenv, python3.10 on the PATH): stock environment left out"
  fi
}

case ${1:-default} in
  default) set_up_default ;;
  stock) set_up_stock ;;
  *) fail "usage: $0 [stock], but came: $*" ;;
esac
