#!/usr/bin/env bash
# The trainings of papers.md: days on one core. ptb/bin is made by ptb.sh.
set -eu

# Goldberger & Melamud on PTB.
scripts/recipe.py gm2018_table5 --data ptb/bin --out gm2018 --rows bnce-300 bnce-650 dev-300 nce-300 ranking-100 ranking0.02-100 softmax-100 softmax-300
scripts/recipe.py gm2018_table5 --data ptb/bin --out gm2018-2 --rows ranking-100 softmax-100 --seed 2
scripts/recipe.py gm2018_table5 --data ptb/bin --out gm2018-3 --rows ranking-100 --seed 3
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium --rows dev-30 nce-650 ranking0.2-100 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-300 --rows ranking-falling-300 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-rank300 --rows ranking0.02-300 -- --matmul-precision medium
scripts/recipe.py gm2018_table2 --data ptb/bin --out medium-table2 --rows dev10-300 -- --matmul-precision medium
scripts/recipe.py gm2018_table2 --data ptb/bin --out medium-table2-300 --rows dev0.1-300 -- --matmul-precision medium
scripts/recipe.py gm2018_table2 --data ptb/bin --out medium-table2-100 --rows dev0.1-100 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-30 --rows nce-r-30 nce-r10-30 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-30-and --rows and-30 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-table5-30 --rows bnce-30 nce-30 softmax-30 -- --matmul-precision medium
scripts/recipe.py gm2018_table2 --data ptb/bin --out medium-table2-30 --rows dev10-30 dev0.1-30 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-table5-100 --rows bnce-100 nce-100 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-table5-100-dev --rows dev-100 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-100 --rows nce-r-100 nce-r10-100 and-100 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3 --rows nce-r-650 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-half --threads 2 --rows nce-r0.5-650 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-and650 --threads 2 --rows and-650 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-and05 --threads 2 --rows and0.5-650 -- --matmul-precision medium
scripts/recipe.py gm2018_table3 --data ptb/bin --out medium-table3-ncer5 --threads 2 --rows nce-r5-650 -- --matmul-precision medium
scripts/recipe.py gm2018_table5 --data ptb/bin --out threads-650 --threads 2 --rows dev-650 softmax-650 -- --matmul-precision medium
for seed in 1 2 3; do
    scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-$seed --rows ranking-falling-100 --seed $seed \
        -- --matmul-precision medium
done
scripts/recipe.py gm2018_table5 --data ptb/bin --out medium-3 --rows ranking-falling-100 softmax-100 --seed 3 -- --matmul-precision medium

# Mnih & Teh on PTB.
for seed in 1 2 3; do
    scripts/recipe.py mt2012_ptb --data ptb/bin --out mt2012-$seed --seed $seed -- --max-epoch 2 --matmul-precision medium
done
