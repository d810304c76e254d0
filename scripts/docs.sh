#!/usr/bin/env bash
# Build the documentation into site/. A link, an anchor or a page that leads nowhere fails it.
#
#   scripts/docs.sh          set up .venv-docs where needed, and build
#   scripts/docs.sh serve    show it while it is written
#
# PYTHON chooses the interpreter, 3.11 or newer. The package itself is not installed: its docstrings
# are read, not run, so that neither torch nor fairseq is needed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Of mkdocs-material's authors, about their next project.
export NO_MKDOCS_2_WARNING=1 PIP_DISABLE_PIP_VERSION_CHECK=1

venv=.venv-docs
list_extra='import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")'
python=${PYTHON:-python3}
"$python" -c 'import tomllib' 2>/dev/null || {
  echo "docs: Python 3.11 or newer is required, but $python is $("$python" -V) (choose another with PYTHON=)" >&2
  exit 1
}
wanted=$("$python" -c "$list_extra")
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "$wanted" ]; then
  echo "docs: pip install" $wanted
  "$python" -m venv --clear "$venv"
  "$venv/bin/python" -m pip install --quiet -r /dev/stdin <<<"$wanted"
  echo "$wanted" >"$venv/.installed"
fi

# Not quiet: mkdocs counts no warnings then, and --strict lets them pass.
case ${1:-build} in
  build) "$venv/bin/mkdocs" build --strict ;;
  serve) "$venv/bin/mkdocs" serve ;;
  *) echo "usage: $0 [serve], but came: $*" >&2 && exit 1 ;;
esac
