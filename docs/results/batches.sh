#!/usr/bin/env bash
# The trainings of batches.md: an hour on one core. ptb/bin is made by ptb.sh.
set -eu

# Batches of 400, 1,600 and 6,400 targets.
train() {  # OUT BATCH LR..., with the methods
    scripts/compare.py ptb/bin --out $1 --recipe rnn200 --only-train "${methods[@]}" \
        --learning-rates "${@:3}" -- --optimizer adam --lr-scheduler fixed \
        --batch-size $2 --max-epoch 0 --max-update $((23200 / $2)) \
        --validate-interval-updates $((23200 / $2)) --max-valid-steps 14
}
methods=(--criteria bnce softmax=cross_entropy --flags-for bnce "--row-sparse --optimizer lazy_adam")
train batches-20 20 0.001 0.002 0.004 0.008 0.016
train batches-80 80 0.001 0.002 0.004 0.008 0.016 0.032
train batches-320 320 0.004 0.008 0.016 0.032 0.064 0.128
methods=(--criteria unigram=self_norm_softmax --flags-for unigram "--self-norm-alpha 0")
train unigram-20 20 0.002 0.004 0.008 0.016
train unigram-80 80 0.008 0.016 0.032
train unigram-320 320 0.016 0.032 0.064
