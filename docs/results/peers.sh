#!/usr/bin/env bash
# The trainings of peers.md: hours on one core. ptb/text and mscc/text are made by ptb.sh and
# adaptive-softmax.sh, KENLM is the folder of KenLM's programs.
set -eu

# Words of fewer than 10 occurrences in the novels are <unk> for every model.
mkdir -p ptb novels
cp ptb/text/*.txt ptb/
cp mscc/text/*.txt novels/
for split in valid test; do awk 'NR % 15 == 1' mscc/text/$split.txt > novels/$split.txt; done

# Subwords: pip install subword-nmt
split_words() {  # CORPUS MERGES LINES
    mkdir -p $1-bpe$2
    head -n $3 $1/train.txt | sed 's/<unk>//g' | subword-nmt learn-bpe -s $2 > $1-bpe$2/codes
    for split in train valid test; do
        subword-nmt apply-bpe -c $1-bpe$2/codes --glossaries '<unk>' < $1/$split.txt > $1-bpe$2/$split.txt
    done
}
split_words ptb 4000 50000
split_words novels 4000 500000
split_words novels 16000 500000
for text in ptb novels ptb-bpe4000 novels-bpe4000 novels-bpe16000; do
    scripts/fairseq-bnce prepare-text --tokenized --train $text/train.txt --valid $text/valid.txt \
        --test $text/test.txt --out $text/data
done

# fairseq
train() {  # TEXT OUT UPDATES INTERVAL, with a method and further flags
    scripts/compare.py $1/data/bin --out $2 --recipe adagrad200 --profile-batches 0 --learning-rates 0.05 \
        "${method[@]}" -- --max-update $3 --validate-interval-updates $4 "${@:5}"
}
method=(--criteria bnce --flags-for bnce "--row-sparse --optimizer sparse_adagrad --warmup-updates 100")
train ptb ptb-bnce 3000 250 --dropout 0.2
train novels novels-bnce 4000 300
scripts/compare.py ptb/data/bin --out ptb-gru --recipe rnn200 --profile-batches 0 --criteria gru=bnce \
    --flags-for gru "--row-sparse --warmup-updates 100 --optimizer sparse_adagrad --lr 0.1,0.03" -- --arch rnn_lm --rnn-cell gru \
    --decoder-layers 1 --clip-norm 1 --lr-scheduler fixed --max-epoch 2 --batch-size 80 --validate-interval-updates 145
method=(--criteria adaptive=adaptive_loss)
train ptb ptb-adaptive 1800 150 --dropout 0.2
train novels novels-adaptive 1800 200
method=(--criteria unigram=self_norm_softmax --flags-for unigram "--self-norm-alpha 0")
train ptb ptb-softmax 1200 80 --dropout 0.2
method=(--criteria bpe4000=self_norm_softmax --flags-for bpe4000 "--self-norm-alpha 0")
train ptb-bpe4000 ptb-pieces 2600 200 --dropout 0.2
train novels-bpe4000 novels-pieces 1800 150
method=(--criteria bpe16000=self_norm_softmax --flags-for bpe16000 "--self-norm-alpha 0")
train novels-bpe16000 novels-pieces16 690 60

# The peers
scripts/bench.py peers ptb --out peers-ptb --kenlm KENLM --pieces ptb-bpe4000
scripts/bench.py peers novels --out peers-novels --kenlm KENLM --pieces novels-bpe4000 novels-bpe16000
# faster-rnnlm: bench.py of commit d491c41, with --faster-rnnlm FASTER --seconds 900.

# The best road, alone and mixed with KenLM. novels/bin and every-word/bin are made by adaptive-softmax.sh.
seeds=1
road() {  # LABEL DATA OUT UPDATES, and further flags
    scripts/compare.py $2/bin --out $3 --recipe gru200 --only-train --learning-rates ${rates:-0.14} --seeds $seeds \
        --criteria $1=bnce --flags-for $1 "--row-sparse --optimizer sparse_adagrad" \
        -- --lr-scheduler polynomial_decay --total-num-update $4 --max-update $4 --validate-interval-updates 0 "${@:5}"
}
road road ptb ptb-road 1162 --state-reset-rate 0
road reset ptb ptb-reset 1162
road road novels novels-3500 3500 --state-reset-rate 0
road reset novels novels-3000 3000
road reset novels novels-10000 10000
road reset every-word words-8000 8000
seeds="1 2"
road reset novels novels-6000 6000
seeds=1
split() {  # DATA OUT UPDATES
    scripts/compare.py $1/bin --out $2 --recipe gru200 --only-train --seeds $seeds --criteria split=bnce \
        --flags-for split "--row-sparse --optimizer sparse_adagrad --lr 0.16 --dense-lr-scale 0.5" \
        -- --lr-scheduler polynomial_decay --total-num-update $3 --max-update $3 --validate-interval-updates 0
}
seeds="1 2 3"
split ptb split-ptb-581 581
split ptb split-ptb-1162 1162
split novels split-novels-3000 3000
split novels split-novels-6000 6000
split every-word split-words-4400 4400
split every-word split-words-6400 6400
pieces() {  # CORPUS MERGES UPDATES
    scripts/compare.py $1-bpe$2/data/bin --out $1-gru-bpe$2 --recipe gru200 --only-train --criteria bpe$2=self_norm_softmax \
        --flags-for bpe$2 "--self-norm-alpha 0 --lr 0.14" -- --lr-scheduler polynomial_decay --warmup-updates 100 \
        --total-num-update $3 --max-update $3 --validate-interval-updates 0
}
pieces ptb 4000 2100
pieces novels 4000 2100
pieces novels 16000 700
for updates in 1000 2000; do
    scripts/compare.py novels/bin --out novels-adaptive-$updates --recipe adagrad200 --only-train --criteria adaptive=adaptive_loss \
        --learning-rates 0.1 -- --decoder-layers 1 --clip-norm 1 --lr-scheduler polynomial_decay --total-num-update $updates \
        --max-update $updates --validate-interval-updates 0
done
best() {  # FOLDER LABEL: only the run of the best rate
    jq --arg label $2 '.runs |= map(select(.label == $label))' $1/comparison.json > $1/best.json
}
scripts/compare.py ptb/bin --out ptb-adaptive-700 --recipe adagrad200 --only-train --criteria adaptive=adaptive_loss \
    --learning-rates 0.025 0.05 0.1 -- --decoder-layers 1 --clip-norm 1 --lr-scheduler polynomial_decay \
    --total-num-update 700 --max-update 700 --validate-interval-updates 0
softmax() {  # UPDATES RATES
    scripts/compare.py ptb/bin --out ptb-softmax-$1 --recipe gru200 --only-train --criteria softmax=self_norm_softmax \
        --flags-for softmax "--self-norm-alpha 0" --learning-rates "${@:2}" -- --lr-scheduler polynomial_decay \
        --warmup-updates 100 --total-num-update $1 --max-update $1 --validate-interval-updates 0
}
softmax 290 0.07 0.14 0.2
softmax 581 0.14
best ptb-adaptive-700 adaptive@0.1
best ptb-softmax-290 softmax@0.14
scripts/bench.py peers ptb --out mixed-ptb --kenlm KENLM --running --mix split-ptb-{581,1162}/comparison.json \
    ptb-{reset,road}/comparison.json ptb-softmax-290/best.json ptb-softmax-581/comparison.json ptb-adaptive-700/best.json
scripts/bench.py peers novels --out mixed-novels --kenlm KENLM --mix split-novels-{3000,6000}/comparison.json novels-{3000,6000,10000,3500,adaptive-1000,adaptive-2000}/comparison.json
mkdir -p text/every-word
cp mscc-all/text/train.txt text/every-word/
for split in valid test; do awk 'NR % 15 == 1' mscc-all/text/$split.txt > text/every-word/$split.txt; done
scripts/bench.py peers text/every-word --out mixed-words --kenlm KENLM --mix split-words-{4400,6400}/comparison.json words-8000/comparison.json

# Rates, sizes and batches, five minutes each.
rates="0.14 0.2" road road novels novels-rates 3000
road road novels novels-256 2400 --decoder-hidden-size 256 --decoder-embed-dim 256
road road novels novels-800 5600 --batch-size 40
