#!/usr/bin/env bash
# The trainings of ptb.md: hours on one core. PTB_FOLDER has Mikolov's files.
set -eu

# All criteria.
scripts/fairseq-bnce get-data ptb --source PTB_FOLDER --out ptb
scripts/compare.py ptb/bin --out compare-run \
    --criteria cross_entropy bnce+800=bnce bnce shared_nce nce_regularized \
        ranking=bnce ranking+800=bnce \
    --flags-for bnce " --row-sparse" --flags-for bnce+800 "--row-sparse --noise-samples 800" \
    --flags-for ranking "--row-sparse --objective ranking" \
    --flags-for ranking+800 "--row-sparse --objective ranking --noise-samples 800" \
    --flags-for shared_nce " --row-sparse" --flags-for nce_regularized "--self-norm-alpha 10" \
    -- --max-epoch 3 --lr-scheduler fixed --lr 20,20,10 --optimizer sparse_sgd

# rnn_lm beside lstm_lm.
criteria=() flags=()
for batch in 20x20 4x100; do for units in 30 100 200; do
    size="--batch-size ${batch%x*} --tokens-per-sample ${batch#*x}"
    size="$size --decoder-embed-dim $units --decoder-hidden-size $units"
    criteria+=("rnn_lm-$batch-$units=bnce" "lstm_lm-$batch-$units=bnce")
    flags+=(--flags-for "rnn_lm-$batch-$units" "--row-sparse $size")
    flags+=(--flags-for "lstm_lm-$batch-$units" "--row-sparse --arch lstm_lm --decoder-out-embed-dim $units $size")
done; done
scripts/compare.py ptb/bin --out fused --recipe rnn200 --only-train \
    --criteria "${criteria[@]}" "${flags[@]}" \
    -- --max-update 400 --max-valid-steps 1 --validate-interval-updates 0 \
    --optimizer sparse_sgd --lr-scheduler fixed --lr 20

# The ranking objective.
R="--row-sparse --objective ranking"
scripts/compare.py ptb/bin --recipe rnn200 --out ranking-run \
    --criteria cross_entropy dev0.2=self_norm_softmax r0.1+800=bnce r0.15+last=bnce r0.2+last=bnce \
    --flags-for dev0.2 "--self-norm-alpha 0.2" \
    --flags-for r0.1+800 "$R --self-norm-alpha 0.1 --noise-samples 800" \
    --flags-for r0.15+last "$R --self-norm-alpha 0.15 --noise-samples-by-epoch 800,800,4000" \
    --flags-for r0.2+last "$R --self-norm-alpha 0.2 --noise-samples-by-epoch 800,800,4000" \
    -- --max-epoch 3 --lr-scheduler fixed --lr 20,20,10 --optimizer sparse_sgd

# Sampled binary cross-entropy.
D="--row-sparse --noise-samples 800"
scripts/compare.py ptb/bin --recipe rnn200 --out sampled-run --profile-batches 0 \
    --criteria cps=sampled_bce is=sampled_bce shared_nce complementary=sampled_bce sampled_softmax bnce+800=bnce \
        complementary-lr30=sampled_bce --flags-for complementary-lr30 "$D --lr 30,30,15" \
    --flags-for cps "$D --estimator cps" --flags-for is "$D --estimator is" \
    --flags-for complementary "$D --estimator complementary" \
    --flags-for shared_nce "$D" --flags-for sampled_softmax "$D" --flags-for bnce+800 "$D" \
    -- --max-epoch 3 --lr-scheduler fixed --lr 20,20,10 --optimizer sparse_sgd

# Optimisers, one epoch of a GRU of 1 x 200.
gru=(-- --arch rnn_lm --rnn-cell gru --decoder-layers 1 --clip-norm 1 --optimizer adagrad --lr-scheduler fixed --max-epoch 1
    --validate-interval-updates 0)
only=(ptb/bin --recipe rnn200 --only-train)
warm="--row-sparse --warmup-updates 100"
scripts/compare.py "${only[@]}" --out gru400 --criteria adagrad=bnce --learning-rates 0.05 0.07 0.1 \
    --flags-for adagrad "$warm --optimizer sparse_adagrad" "${gru[@]}"
scripts/compare.py "${only[@]}" --out gru400-sgd --criteria sgd=bnce --learning-rates 10 20 \
    --flags-for sgd "--row-sparse --optimizer sparse_sgd" "${gru[@]}"
scripts/compare.py "${only[@]}" --out gru400-adam --criteria adam=bnce --learning-rates 0.002 0.004 \
    --flags-for adam "$warm --optimizer lazy_adam" "${gru[@]}"
scripts/compare.py "${only[@]}" --out gru400-softmax --criteria unigram=self_norm_softmax softmax=cross_entropy \
    --learning-rates 0.07 --flags-for unigram "--self-norm-alpha 0" "${gru[@]}"
scripts/compare.py "${only[@]}" --out gru400-softmax-warm --criteria unigram=self_norm_softmax \
    --learning-rates 0.07 --flags-for unigram "--self-norm-alpha 0 --warmup-updates 100" "${gru[@]}"
scripts/compare.py "${only[@]}" --out gru1600 --criteria adagrad=bnce --learning-rates 0.05 0.07 0.1 0.14 0.2 \
    --flags-for adagrad "$warm --optimizer sparse_adagrad" "${gru[@]}" --batch-size 80
scripts/compare.py "${only[@]}" --out gru1600-adam --criteria adam=bnce --learning-rates 0.004 0.008 \
    --flags-for adam "$warm --optimizer lazy_adam" "${gru[@]}" --batch-size 80

# Three epochs of an LSTM of 2 x 200, everyone with Adagrad.
epochs=(--learning-rates 0.07 -- --optimizer adagrad --lr-scheduler fixed --max-epoch 3 --validate-interval-updates 0)
scripts/compare.py "${only[@]}" --out epochs-bnce --criteria bnce ranking=bnce \
    --flags-for bnce "$warm --optimizer sparse_adagrad" \
    --flags-for ranking "$warm --optimizer sparse_adagrad --objective ranking --self-norm-alpha 0.2
        --noise-samples-by-epoch 800,800,4000" "${epochs[@]}"
scripts/compare.py "${only[@]}" --out epochs-softmax --criteria unigram=self_norm_softmax \
    --flags-for unigram "--self-norm-alpha 0 --warmup-updates 100" "${epochs[@]}"

# Ten epochs that fall to 0, the state carried over.
ten() {  # OUT LABEL=CRITERION FLAGS, and further flags
    scripts/compare.py ptb/bin --recipe gru200 --only-train --out $1 --criteria $2 --flags-for ${2%=*} "$3" "${@:4}" \
        --lr-scheduler polynomial_decay --total-num-update 5810 --max-update 5810 --validate-interval-updates 0 \
        --arch rnn_lm --rnn-cell lstm --decoder-layers 2 --dropout 0.3
}
ten ten-softmax softmax=self_norm_softmax "--self-norm-alpha 0 --lr 0.14 --warmup-updates 100" --seeds 1 2 3 --
ten ten-bnce bnce=bnce "--row-sparse --optimizer sparse_adagrad --lr 0.14" --seeds 1 2 3 --
ten ten-ranking ranking=bnce "--row-sparse --optimizer sparse_adagrad --lr 0.14 --objective ranking --self-norm-alpha 0.3
    --noise-samples-by-epoch 800,800,800,800,800,800,800,800,4000" --seeds 1 2 3 --
rows="--optimizer sparse_adagrad --lr 0.45 --dense-lr-scale 0.15"
ten ten-softmax-rows softmax=self_norm_softmax "$rows --self-norm-alpha 0 --warmup-updates 100" --
late=800,800,800,800,800,4000
ten ten-ranking-rows ranking=bnce "$rows --row-sparse --objective ranking --self-norm-alpha 0.2 --noise-samples-by-epoch $late" --seeds 1 2 3 --
ten ten-ranking-0.3 ranking=bnce "$rows --row-sparse --objective ranking --self-norm-alpha 0.3
    --noise-samples-by-epoch 800,800,800,800,800,800,800,800,4000" --seeds 1 2 --
# The last epoch by the softmax goes on with the optimiser's state, in which AT9, the checkpoint of nine epochs, has the other
# criterion's name: state["optimizer_history"][-1]["criterion_name"] = "SelfNormSoftmaxCriterion".
ten ten-ending softmax=self_norm_softmax "--self-norm-alpha 0.2 --optimizer sparse_adagrad --lr 0.14" -- --restore-file AT9

# One epoch and a half of 1.25 million words of the novels, the first of adaptive-softmax.sh's.
head -n 57605 mscc/text/train.txt > first.txt
scripts/fairseq-bnce prepare-text --tokenized --dict mscc/bin/dict.txt --train first.txt --valid valid.txt --test test.txt --out first
some() {  # OUT LABEL=CRITERION FLAGS, and further flags
    scripts/compare.py first/bin --recipe gru200 --only-train --out $1 --criteria $2 --flags-for ${2%=*} "$3" "${@:4}" -- --clip-norm 1 \
        --warmup-updates 100 --lr-scheduler polynomial_decay --total-num-update 1172 --max-update 1172 --validate-interval-updates 0 \
        --arch rnn_lm --rnn-cell lstm --decoder-layers 2 --dropout 0.3
}
some first-softmax softmax=self_norm_softmax "--self-norm-alpha 0 --lr 0.14"
some first-softmax-0.07 softmax07=self_norm_softmax "--self-norm-alpha 0 --lr 0.07"
some first-bnce bnce=bnce "--row-sparse --optimizer sparse_adagrad --lr 0.14" --seeds 1 2 3
some first-ranking ranking=bnce "--row-sparse --optimizer sparse_adagrad --lr 0.14 --objective ranking --self-norm-alpha 0.3
    --noise-samples-by-epoch 800,4000" --seeds 1 2 3

# A softmax trained on by noise: SOFTMAX is a checkpoint of ten-softmax. A given log Z leaves its rows as they are.
for way in "level " "as-it-is --log-z 2.16"; do
    scripts/compare.py ptb/bin --recipe gru200 --only-train --out softmax-on-${way%% *} --criteria on=bnce \
        --flags-for on "--row-sparse --optimizer sparse_adagrad --lr 0.02 --dense-lr-scale 0.5 ${way#* }" \
        -- --arch rnn_lm --rnn-cell lstm --decoder-layers 2 --dropout 0.3 --clip-norm 1 --warmup-updates 100 \
        --lr-scheduler polynomial_decay --total-num-update 290 --max-update 290 --validate-interval-updates 58 --finetune-from-model SOFTMAX
done

# Batches of sentences: bench.py shares of commit d491c41; shares-novels is first/bin with 1,172 updates.

# A rate of rows and one of layers, one epoch that falls to 0.
rates() {  # RECIPE OUT, and pairs RATExSCALE
    local recipe=$1 out=$2 targets=${targets:-1600} data=${data:-ptb} criteria=() flags=() one
    local updates=${updates:-$((929600 / targets))}
    shift 2
    for one in "$@"; do
        criteria+=("$one=bnce")
        flags+=(--flags-for $one "--row-sparse --optimizer sparse_adagrad --lr ${one%x*} --dense-lr-scale ${one#*x}")
    done
    scripts/compare.py $data/bin --recipe $recipe --only-train --out $out --criteria "${criteria[@]}" "${flags[@]}" \
        -- --clip-norm 1 --batch-size $((targets / 20)) --warmup-updates 100 --lr-scheduler polynomial_decay \
        --total-num-update $updates --max-update $updates --validate-interval-updates 0
}
all="0.16x0.2 0.2x0.2 0.24x0.2 0.24x0.15 0.24x0.1 0.22x0.14"
rates gru200 rates/gru-1600 0.1x1 0.14x1 0.2x1 0.08x0.5 0.16x0.5 0.32x0.5 0.32x0.2 0.45x0.15 $all
rates adagrad200 rates/lstm-1600 0.14x1 0.08x0.5 0.16x0.5 0.32x0.5 0.32x0.2 0.45x0.15 0.64x0.15 0.64x0.1 0.9x0.1 $all
rates adam200 rates/transformer-1600 0.04x1 0.08x0.1 0.16x0.1 0.32x0.1 $all
targets=400 rates gru200 rates/gru-400 0.16x0.5 0.22x0.14 0.24x0.2 0.32x0.2 0.45x0.15
targets=400 rates adagrad200 rates/lstm-400 0.22x0.14 0.32x0.2 0.45x0.15
targets=400 rates adam200 rates/transformer-400 0.16x0.1 0.22x0.14
targets=6400 rates gru200 rates/gru-6400 0.16x0.5 0.22x0.14 0.24x0.2 0.32x0.2 0.45x0.15 0.64x0.15 0.9x0.1
targets=6400 rates adagrad200 rates/lstm-6400 0.16x0.5 0.32x0.5 0.22x0.14 0.32x0.2 0.45x0.15 0.64x0.15 0.9x0.1
targets=6400 rates adam200 rates/transformer-6400 0.16x0.1 0.22x0.14
# The novels of adaptive-softmax.sh.
data=novels updates=1000 rates adagrad200 rates/novels-lstm 0.16x0.5 0.1x1 0.24x0.2 0.22x0.14 0.45x0.15 0.64x0.1
data=novels updates=1000 rates adam200 rates/novels-transformer 0.16x0.1 0.04x1 0.22x0.14
