#!/usr/bin/env bash
# The models of completion.md: hours on two cores. FOLDER has the novels and questions.csv, answers.csv
# the first 520 questions (head -521 of the challenge's tables); speech-long is made by speech.sh.
set -eu

# Train, and answer.
scripts/fairseq-bnce get-data mscc --source FOLDER --questions questions.csv --answers answers.csv --out mscc
scripts/recipe.py mt2012_mscc --data mscc/bin --out mscc-run --rows ranking ranking-20 \
    --questions questions.csv --answers answers.csv
scripts/recipe.py mscc_lstm --data mscc/bin --out lstm-run --threads 2 --rows ranking-400 ranking-650 \
    --questions questions.csv --answers answers.csv -- --matmul-precision medium
ln -s mscc-run/runs/ranking-seed1-*/checkpoints/checkpoint_best.pt lbl.pt
ln -s mscc-run/runs/ranking-20-seed1-*/checkpoints/checkpoint_best.pt lbl20.pt
ln -s lstm-run/runs/ranking-400-seed1-*/checkpoints/checkpoint_best.pt lstm400.pt
ln -s lstm-run/runs/ranking-650-seed1-*/checkpoints/checkpoint_best.pt lstm650.pt
ln -s speech-long/lm/checkpoint_best.pt lstm.pt
for models in lbl.pt lbl20.pt lstm400.pt lstm650.pt lstm.pt lbl.pt:lbl20.pt lbl.pt:lstm.pt; do
    fairseq-bnce complete --path $models questions.csv --answers answers.csv --json > ${models//[.:]/-}.json
done

# A GRU, KenLM and their mixture; peers.sh makes both models. A weight of almost 0 is KenLM alone.
answer() {  # NAME FILE, and flags
    scripts/fairseq-bnce complete --path novels-3500/runs/*/checkpoints/checkpoint_last.pt "${@:3}" questions.csv --answers answers.csv \
        --json | sed "s/\"path\": \"[^\"]*\"/\"path\": \"$1\"/" > $2.json
}
answer gru gru
answer "gru mixed with KenLM" gru-kenlm --mix-with mixed-novels/kenlm.bin --mix-weight 0.45
answer KenLM kenlm --mix-with mixed-novels/kenlm.bin --mix-weight 0.000001
