"""The architectures that scoring is tested with, small and hardly trained."""

from architectures import FCONV, LIGHTCONV
from tools import LSTM, TRANSFORMER, modern

BNCE = ["--criterion", "bnce", "--sample-break-mode", "eos", "--optimizer", "adam", "--lr", "0.02"]
BANDS = ["--arch", "transformer_lm_wiki103", *TRANSFORMER[2:]]
for _part in ("input", "softmax"):
    BANDS += [f"--adaptive-{_part}-cutoff", "12,30", f"--adaptive-{_part}-factor", "2"]
_TIED = ["--share-decoder-input-output-embed"]
_TWO = ["--decoder-layers", "2"]

FLAGS = {
    "lstm_lm": [*LSTM, *_TWO, *BNCE],
    "lstm_lm residual": [*LSTM, *_TWO, "--residuals", *BNCE],
    "lstm_lm bottleneck tied": [*LSTM, "--decoder-hidden-size", "24", *_TIED, *BNCE],
    "transformer_lm": [*TRANSFORMER, *_TWO, *BNCE],
    "transformer_lm bands": [*BANDS, *BNCE],
    "lightconv_lm": [*LIGHTCONV, *BNCE],
    "fconv_lm": [*FCONV, *BNCE],
    "rnn_lm": ["--arch", "rnn_lm_gm30", *BNCE],
    "rnn_lm gru tied": ["--arch", "rnn_lm", "--rnn-cell", "gru", *_TIED, *BNCE],
    "ffnn_lm": ["--arch", "ffnn_lm_ltcb", "--context-size", "3", *BNCE],
    "ffnn_lm bigram": ["--arch", "ffnn_lm_ltcb", "--context-size", "1", *BNCE],
    "lbl_lm": ["--arch", "lbl_lm_ptb", *BNCE],
    "lbl_lm both sides": ["--arch", "lbl_lm_mscc", "--bidirectional-context", *BNCE],
}
# For parametrize: in the stock environment, one of each way to score.
_STOCK = {"lstm_lm", "transformer_lm", "rnn_lm", "lbl_lm", "lbl_lm both sides"}
_EACH = [name for name in FLAGS if name != "ffnn_lm"]  # for which the bigram stands
EACH = [each for name in _EACH for each in ([name] if name in _STOCK else modern(name))]
CAUSAL = [name for name in EACH if name != "lbl_lm both sides"]
# What one of the architectures may be trained with besides.
BOS = {"transformer_lm bos": [*FLAGS["transformer_lm"], "--add-bos-token"]}
DYNAMIC = "lightconv_lm dynamic"  # its kernel is longer than most lines
_DYNAMIC = ["--decoder-conv-type", "dynamic", "--decoder-kernel-size-list", "[3, 31]"]
FEW_TARGETS = "rnn_lm few targets"  # most words are read and not predicted
ADAPTIVE = "transformer_lm adaptive"  # an adaptive softmax, as fairseq trains it
FLAGS[ADAPTIVE] = [*BANDS, *BNCE, "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
FLAGS.update({DYNAMIC: [*FLAGS["lightconv_lm"], *_DYNAMIC], **BOS})
FLAGS[FEW_TARGETS] = [*FLAGS["rnn_lm"], "--output-dictionary-size", "12"]
