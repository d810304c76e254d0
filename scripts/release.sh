#!/usr/bin/env bash
# Build the source distribution and the wheel, and use the wheel where nothing else of this checkout
# is: in an environment with the packages of .venv, and in one with those of .venv-stock if it exists.
#
#   scripts/release.sh            check, and keep nothing
#   scripts/release.sh dist       and keep both files in the folder dist, which must not exist
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH PYTHONHOME

say() { printf 'release: %s\n' "$*"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dist=${1:-$work/dist}
[ ! -e "$dist" ] || { say "required a folder that does not exist, got $dist" >&2; exit 2; }

# The wheel is built from the source distribution, which shows that nothing is missing there.
build() {
  say "build and check"
  "$root/.venv/bin/python" -m venv "$work/tools"
  "$work/tools/bin/python" -m pip install -qq build twine
  "$work/tools/bin/python" -m build --outdir "$dist" "$root" >"$work/build.log" 2>&1 ||
    { cat "$work/build.log"; exit 1; }
  "$work/tools/bin/python" -m twine check --strict "$dist"/*
}

# An environment with links to all packages of another, except for this one.
link_packages() {
  local source target entry
  "$1/bin/python" -m venv --without-pip "$2"
  source=$(echo "$1"/lib/python*/site-packages) target=$(echo "$2"/lib/python*/site-packages)
  for entry in "$source"/*; do
    case ${entry##*/} in
      fairseq_bnce* | __editable__* | __pycache__) ;;
      *) ln -s "$entry" "$target" ;;
    esac
  done
}

# In a folder without sources: help, a vocabulary, a training that finds the plugin by name, scores.
use() {
  local python=$1/bin/python command=$1/bin/fairseq-bnce i train
  mkdir "$1/try" && cd "$1/try"
  "$python" -m pip install --quiet --no-deps --no-index "$dist"/*.whl
  "$command" --help >help
  for i in {1..60}; do echo "the cat $((i % 7)) sat on mat $((i % 5))"; done >text
  train=(data/bin --user-dir fairseq_bnce --task language_modeling --criterion bnce --cpu
    --arch transformer_lm --decoder-embed-dim 8 --decoder-input-dim 8 --decoder-output-dim 8
    --decoder-ffn-embed-dim 8 --decoder-layers 1 --decoder-attention-heads 1 --optimizer adam
    --lr 0.01 --batch-size 8 --tokens-per-sample 16 --max-update 5 --num-workers 0
    --required-batch-size-multiple 1)
  {
    "$command" prepare-text --input text --tokenized --out data &&
      "$python" -m fairseq_cli.train "${train[@]}" &&
      "$command" score --path checkpoints/checkpoint_last.pt text
  } >log 2>&1 || { cat log; exit 1; }
  "$python" -c 'import fairseq_bnce, sys
assert fairseq_bnce.__file__.startswith(sys.prefix), fairseq_bnce.__file__
print("release: works on Python", sys.version.split()[0], "with torch", end=" ")
import torch; print(torch.__version__)'
}

build
dist=$(cd "$dist" && pwd)
for venv in .venv .venv-stock; do
  [ -x "$root/$venv/bin/python" ] || continue
  link_packages "$root/$venv" "$work/$venv"
  (use "$work/$venv")
done
