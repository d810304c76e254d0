#!/usr/bin/env bash
# The trainings of adaptive-softmax.md: hours on one core.
# FOLDER has the novels of the sentence completion challenge; ptb/bin is made by ptb.sh.
set -eu

# Novels, lstm_lm: data, learning rates, seeds, warm-up, longer runs, the speed of the softmax.
scripts/fairseq-bnce get-data mscc --source FOLDER --out mscc
for split in valid test; do awk 'NR % 15 == 1' mscc/text/$split.txt > $split.txt; done
scripts/fairseq-bnce prepare-text --tokenized --dict mscc/bin/dict.txt --valid valid.txt --test test.txt --out novels
ln -s ../../mscc/bin/train.{bin,idx} novels/bin/

sparse="--row-sparse --optimizer sparse_adagrad"
methods=(--criteria adaptive=adaptive_loss bnce ranking=bnce --recipe adagrad200 --profile-batches 0
    --flags-for bnce "$sparse" --flags-for ranking "$sparse --objective ranking")
scripts/compare.py novels/bin --out grid "${methods[@]}" --only-train --learning-rates 0.1 0.025 \
    -- --max-update 500
scripts/compare.py novels/bin --out best "${methods[@]}" --learning-rates 0.05 \
    --questions questions.csv --answers answers.csv
scripts/compare.py novels/bin --out seeds "${methods[@]}" --only-train --learning-rates 0.05 --seeds 1 2 3
scripts/compare.py novels/bin --out warmup "${methods[@]}" --learning-rates 0.05 --seeds 1 2 3 \
    --flags-for adaptive "--warmup-updates 0" --questions questions.csv --answers answers.csv \
    -- --warmup-updates 100
scripts/compare.py novels/bin --out warmup-adaptive --criteria adaptive=adaptive_loss --recipe adagrad200 \
    --only-train --learning-rates 0.05 --seeds 1 2 -- --warmup-updates 100
scripts/compare.py novels/bin --out longer "${methods[@]}" --only-train --learning-rates 0.05 -- --max-update 2000
scripts/compare.py novels/bin --out softmax --recipe adagrad200 --only-train --criteria softmax=cross_entropy \
    --learning-rates 0.05 -- --max-update 16 --log-interval 4 --validate-interval-updates 0

# Novels, lstm_lm: a whole epoch.
epoch=(--warmup-updates 100 --max-update 31000 --validate-interval-updates 1000)
scripts/compare.py novels/bin --out epoch-bnce --recipe adagrad200 --profile-batches 0 --criteria bnce \
    --flags-for bnce "$sparse" --learning-rates 0.05 --questions questions.csv --answers answers.csv -- "${epoch[@]}"
scripts/compare.py novels/bin --out epoch-adaptive --recipe adagrad200 --profile-batches 0 --criteria adaptive=adaptive_loss \
    --flags-for adaptive "--warmup-updates 0" --learning-rates 0.05 --questions questions.csv --answers answers.csv \
    -- "${epoch[@]}" --save-interval-updates 1000 --keep-interval-updates 1

# Novels, every word.
scripts/fairseq-bnce get-data mscc --source FOLDER --min-count 1 --out mscc-all
for split in valid test; do awk 'NR % 15 == 1' mscc-all/text/$split.txt > $split.txt; done
scripts/fairseq-bnce prepare-text --tokenized --dict mscc-all/bin/dict.txt --valid valid.txt --test test.txt --out every-word
ln -s ../../mscc-all/bin/train.{bin,idx} every-word/bin/
every=(every-word/bin --recipe adagrad200 --profile-batches 0 --only-train
    --flags-for bnce "$sparse --warmup-updates 100")
scripts/compare.py "${every[@]}" --out every-grid --criteria bnce adaptive=adaptive_loss \
    --learning-rates 0.025 0.05 0.1 -- --max-update 250
scripts/compare.py every-word/bin --out every-adaptive --recipe adagrad200 --profile-batches 0 --only-train \
    --criteria adaptive=adaptive_loss --learning-rates 0.05 --seeds 1 2 3 \
    -- --max-update 3100 --validate-interval-updates 500
scripts/compare.py "${every[@]}" --out every-bnce --criteria bnce --learning-rates 0.1 --seeds 1 2 3 \
    -- --max-update 3100 --validate-interval-updates 1000

scripts/compare.py every-word/bin --out every-warmup --recipe adagrad200 --profile-batches 0 --only-train \
    --criteria adaptive=adaptive_loss --learning-rates 0.05 --seeds 2 3 \
    -- --max-update 500 --validate-interval-updates 500 --warmup-updates 100
bands="--adaptive-input --adaptive-input-cutoff 10000,50000 --adaptive-softmax-cutoff 10000,50000 --tie-adaptive-weights"
lazy="--row-sparse --optimizer lazy_adam"
transformers=(every-word/bin --recipe adam200 --profile-batches 0 --only-train --criteria adaptive=adaptive_loss bands=bnce tied=bnce
    --flags-for adaptive "$bands" --flags-for bands "$bands $lazy" --flags-for tied "--share-decoder-input-output-embed $lazy")
scripts/compare.py "${transformers[@]}" --out every-transformer-grid --learning-rates 0.002 0.004 0.001 \
    -- --max-update 200 --validate-interval-updates 200
scripts/compare.py "${transformers[@]}" --out every-transformer --learning-rates 0.002 --seeds 1 2 3 \
    -- --max-update 3100 --validate-interval-updates 500
# The same by Adagrad, whose rate falls to 0.
falling() {  # OUT UPDATES LABEL=CRITERION FLAGS, and further flags
    scripts/compare.py every-word/bin --out $1 --recipe adam200 --profile-batches 0 --only-train --criteria $3 --flags-for ${3%=*} "$4" \
        "${@:5}" --arch transformer_lm --clip-norm 1 --warmup-updates 100 --lr-scheduler polynomial_decay --total-num-update $2 --max-update $2
}
rows="--row-sparse --optimizer sparse_adagrad"
for rate in 0.16x0.1 0.08x0.2 0.04x0.4; do
    falling every-bands-$rate 600 $rate=bnce "$bands $rows --lr ${rate%x*} --dense-lr-scale ${rate#*x}" -- --validate-interval-updates 0
done
falling every-tied-falling 600 tied=bnce "--share-decoder-input-output-embed $rows --lr 0.16 --dense-lr-scale 0.1" -- --validate-interval-updates 0
falling every-adaptive-falling 600 adaptive=adaptive_loss "$bands --optimizer adagrad --lr 0.04" -- --validate-interval-updates 0
falling every-bands-adagrad 3100 bands-adagrad=bnce "$bands $rows --dense-lr-scale 0.4" --learning-rates 0.04 --seeds 1 2 3 \
    -- --validate-interval-updates 500
scripts/bench.py scoring --out scoring --vocab 239187 --tokens 50000 200000 --exact-tokens 2000 8000 --memory-lines

# Novels, transformer_lm.
methods=(--recipe adam200 --criteria bnce ranking=bnce adaptive=adaptive_loss
    --flags-for bnce "$lazy" --flags-for ranking "$lazy --objective ranking")
scripts/compare.py novels/bin --out transformer "${methods[@]}" --only-train --learning-rates 0.001 0.002 0.004 \
    -- --max-update 300 --validate-interval-updates 150
tied="$lazy --share-decoder-input-output-embed"
scripts/compare.py novels/bin --out transformer-start --recipe adam200 --only-train \
    --criteria random=bnce tied=bnce tied-random=bnce \
    --flags-for random "$lazy --init-output-bias none" --flags-for tied "$tied" \
    --flags-for tied-random "$tied --init-output-bias none" --learning-rates 0.001 0.002 0.004 \
    -- --max-update 300 --validate-interval-updates 150
scripts/compare.py novels/bin --out transformer-longer "${methods[@]}" --learning-rates 0.002 \
    --questions questions.csv --answers answers.csv -- --max-update 1500 --validate-interval-updates 250

adagrad=(--recipe adam200 --only-train --criteria adagrad=bnce
    --flags-for adagrad "--row-sparse --optimizer sparse_adagrad --warmup-updates 100")
scripts/compare.py novels/bin --out transformer-adagrad-longer "${adagrad[@]}" --learning-rates 0.02 \
    -- --max-update 1500 --validate-interval-updates 250

# PTB, lstm_lm.
methods=(--criteria softmax=cross_entropy adaptive=adaptive_loss bnce ranking=bnce --recipe adagrad200
    --profile-batches 0 --flags-for bnce "$sparse" --flags-for ranking "$sparse --objective ranking")
longer=(-- --max-update 1000 --validate-interval-updates 100 --max-valid-steps 14)
scripts/compare.py ptb/bin --out ptb-longer "${methods[@]}" --learning-rates 0.05 "${longer[@]}"
scripts/compare.py ptb/bin --out ptb-own --criteria bnce ranking=bnce --recipe adagrad200 --profile-batches 0 \
    --flags-for bnce "$sparse" --flags-for ranking "$sparse --objective ranking" --learning-rates 0.025 "${longer[@]}"

# PTB, transformer_lm.
methods=(--recipe adam200 --only-train
    --criteria bnce ranking=bnce adaptive=adaptive_loss softmax=cross_entropy
    --flags-for bnce "$lazy" --flags-for ranking "$lazy --objective ranking")
scripts/compare.py ptb/bin --out ptb-transformer "${methods[@]}" --learning-rates 0.002 0.004 0.001 \
    -- --max-update 300 --validate-interval-updates 150 --max-valid-steps 14
scripts/compare.py ptb/bin --out ptb-transformer-longer "${methods[@]}" --learning-rates 0.002 \
    -- --max-update 1000 --validate-interval-updates 250 --max-valid-steps 14

# PTB, fconv_lm. ADAPTIVE is the first command's checkpoint_last.pt.
scripts/compare.py ptb/bin --out fconv-adaptive --recipe fconv200 --only-train --criteria adaptive=adaptive_loss \
    -- --lr 0.002 --max-update 500 --validate-interval-updates 0
scripts/compare.py ptb/bin --out fconv-start --recipe fconv200 --only-train --criteria adaptive=adaptive_loss bnce \
    --flags-for bnce "$lazy --adaptive-softmax-cutoff 2000" \
    -- --lr 0.001 --max-update 100 --validate-interval-updates 25 --finetune-from-model ADAPTIVE

# By vocabulary.
scripts/bench.py vocabulary --out bench --device cpu --recipe lstm200 --vocab 10000 200000 1000000 \
    --systems bnce_sparse adaptive_loss --max-seconds 8
