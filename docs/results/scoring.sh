#!/usr/bin/env bash
# The measurements of scoring.md. ptb is made by ptb.sh, mscc and novels by adaptive-softmax.sh;
# checkpoint_best.pt is a model of the table, such as those of papers.sh.
set -eu

# The reduced partition function.
scripts/bench.py offset lstm=checkpoint_best.pt --out offset --fit ptb/text/train.txt --text ptb/text/test.txt
# Last checkpoints of ptb.sh's ten-softmax-rows and ten-ranking-0.3.
scripts/bench.py offset softmax=ten-softmax-rows.pt ranking=ten-ranking-0.3.pt --out offset-ten --rows 200 500 \
    --fit ptb/text/train.txt --text ptb/text/test.txt
scripts/bench.py offset softmax=checkpoint_best.pt --out offset-650-softmax --fit ptb/text/train.txt --shift ptb/text/valid.txt \
    --text ptb/text/test.txt
scripts/bench.py offset lstm=novels_best.pt --out novels-offset --fit mscc/text/train.txt \
    --text novels/text/valid.txt --contexts 50000 --lines 300 --rows 100 250 1000
scripts/compare.py novels/bin --out softmax --recipe adam200 --only-train --criteria softmax=cross_entropy \
    --learning-rates 0.002 -- --max-update 1500
ln -s softmax/runs/softmax*/checkpoints/checkpoint_best.pt softmax.pt
fairseq-bnce diagnose --path softmax.pt --calibrate rows-1000.pt --reduced-partition 1000 mscc/text/train.txt
fairseq-bnce complete --path rows-1000.pt questions.csv --answers answers.csv --json > rows-1000.json

# Speed and memory on a free core.
scripts/bench.py scoring --out bench --tokens 20000 420000 --exact-tokens 5000 35000 --repeats 3
