#!/usr/bin/env bash
# The experiments of speech.md: some hours on one core. FOLDER has the novels, KENLM KenLM's programs. After an interruption, --only names the stages that are left.
set -eu

# Rescoring.
apt-get install flite
. .venv/bin/activate
pip install pocketsphinx jiwer flashlight-text kenlm
pip install --no-deps pyctcdecode pygtrie
scripts/fairseq-bnce get-data mscc --source FOLDER --out mscc
scripts/bench.py speech --data mscc --out speech-run --kenlm KENLM

# The same with a softmax, and its reduced partition function.
scripts/bench.py speech --data mscc --out softmax-run --model softmax --updates 1000

# A first pass.
scripts/bench.py first-pass --data mscc --speech speech-run --out first-pass --spoken 4000 --updates 1500 --tuned 100
