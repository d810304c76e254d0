"""The language models that fairseq published, rebuilt small, as it saved them in 2018 to 2020."""

import importlib.util
import re

import pytest
import torch
from checkpoint_edits import edited
from test_bands import INPUT, SMALL, WIKI103
from tools import TIED_TRANSFORMER, call_command, evaluate, loss_bits, slow, train

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
def test_published_models_are_scored(name, corpus, tmp_path, capsys):
    """As fairseq itself scores the original: by eval-lm, command, Scorer and flashlight."""
    train(corpus, tmp_path / "run", *PUBLISHED[name], plugin=False)
    made = tmp_path / "run" / "checkpoint_last.pt"
    want = evaluate(corpus, made, plugin=False)
    model = edited(made, tmp_path / "model.pt", as_of_2018, container="Namespace")
    ours = evaluate(corpus, model)
    assert loss_bits(ours) == pytest.approx(loss_bits(want), abs=1e-4)
    scorer = Scorer.from_checkpoint(model, str(corpus), exact=True)
    lines = ["w1 w20 w59", "w3 w4"]
    capsys.readouterr()
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    flags = ["--exact", "--data", corpus]
    assert call_command("score", "--path", model, *flags, tmp_path / "lines.txt") == 0
    printed = [float(line.split()[0]) for line in capsys.readouterr().out.splitlines()]
    assert printed == pytest.approx(list(scorer.score(lines)), abs=1e-3)
    if importlib.util.find_spec("flashlight"):
        assert by_flashlight(scorer, [1, 20, 59]) == pytest.approx(printed[0], abs=1e-3)


def by_flashlight(scorer, ids):
    """The score of a sentence of words w0, w1, ..."""
    from fairseq_bnce.decoding import FlashlightLM

    lm = FlashlightLM(scorer, [f"w{number}" for number in range(60)], searches=1)
    state, total = lm.start(False), 0.0
    for word in ids:
        state, score = lm.score(state, word)
        total += score
    return total + lm.finish(state)[1]
