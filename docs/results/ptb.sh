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
