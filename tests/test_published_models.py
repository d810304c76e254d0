"""The language models that fairseq published, rebuilt small, as it saved them in 2018 to 2020."""

import math
import re

import pytest
import torch
from checkpoint_edits import edited
from test_bands import INPUT, SMALL, WIKI103
from tools import TIED_TRANSFORMER, evaluate, loss_bits, slow, train

from fairseq_bnce import Scorer

SOFTMAX = ["--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
PROJECTIONS = [*INPUT, "--tie-adaptive-proj", "--no-decoder-final-norm"]
# transformer_lm.gbw.adaptive_huge, transformer_lm.wiki103.adaptive, transformer_lm.wmt19.*, the
# word transformer of LibriSpeech (adaptive inputs, not tied).
PUBLISHED = {
    "gbw": [*SMALL, *PROJECTIONS, *SOFTMAX],
    "wiki103": [*WIKI103, *SOFTMAX],
    "wmt19": [*TIED_TRANSFORMER, "--criterion", "cross_entropy", "--add-bos-token"],
    "librispeech": [*SMALL, "--adaptive-input", "--no-decoder-final-norm", *SOFTMAX],
}
# Options of later years.
LATER = r"quant_noise.*|base_.*|scale_.*|decoder_layerdrop|decoder_layers_to_keep|.*activations|"
LATER += r"layernorm_embedding|.*xformers.*|min_params_to_wrap|no_scale_embedding|log_z_shift|"
LATER += r"unnormalized|stateful|state_reset_rate|matmul_precision|tpu|.*bf16.*|amp.*|ema.*|"
LATER += r"heartbeat_timeout"


def as_of_2018(content):
    """Old names of options and parameters, one Namespace of all options, no state of a task."""
    content.pop("task_state", None)
    model = vars(content["cfg"]["model"]) if hasattr(content["cfg"]["model"], "__dict__") else None
    options = content["cfg"]["model"] if model is None else model
    for name in [name for name in options if re.fullmatch(LATER, name)]:
        del options[name]
    if options.get("adaptive_input"):
        options["no_tie_adaptive_proj"] = not options.pop("tie_adaptive_proj")
        options.pop("no_decoder_final_norm")  # which the one before stands for
    parameters = content["model"]
    for prefix in {name.rpartition("q_proj.")[0] for name in parameters if "q_proj.weight" in name}:
        for kind in ("weight", "bias"):
            parts = [parameters.pop(f"{prefix}{part}_proj.{kind}") for part in "qkv"]
            parameters[f"{prefix}in_proj_{kind}"] = torch.cat(parts)


@pytest.mark.parametrize("name", [*slow("gbw"), "wiki103", "wmt19", "librispeech"])
def test_published_models_are_scored(name, corpus, tmp_path):
    """As fairseq itself scores the original: by eval-lm and Scorer."""
    train(corpus, tmp_path / "run", *PUBLISHED[name], plugin=False)
    made = tmp_path / "run" / "checkpoint_last.pt"
    want = loss_bits(evaluate(corpus, made, plugin=False))
    model = edited(made, tmp_path / "model.pt", as_of_2018, container="Namespace")
    assert loss_bits(evaluate(corpus, model)) == pytest.approx(want, abs=1e-4)
    flags = ["--sample-break-mode", "eos", *set(PUBLISHED[name]) & {"--add-bos-token"}]
    want = loss_bits(evaluate(corpus, model, *flags))
    scorer = Scorer.from_checkpoint(model, str(corpus), exact=True)
    lines = (corpus.parent / "valid.txt").read_text().splitlines()
    assert math.log2(scorer.perplexity(lines)) == pytest.approx(want, abs=1e-3)
