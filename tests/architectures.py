"""Small models of fairseq's own, as flags of fairseq-train."""

from tools import LSTM, TIED_TRANSFORMER, TRANSFORMER

FCONV = ["--arch", "fconv_lm", "--decoder-embed-dim", "12", "--decoder-out-embed-dim", "10"]
FCONV += ["--decoder-layers", "[(12, 3)] * 2", "--decoder-attention", "False", "--dropout", "0"]
LIGHTCONV = ["--arch", "lightconv_lm", "--decoder-embed-dim", "16", "--decoder-layers", "2"]
LIGHTCONV += ["--decoder-ffn-embed-dim", "16", "--decoder-attention-heads", "2", "--dropout", "0"]
LIGHTCONV += ["--decoder-conv-type", "lightweight", "--decoder-kernel-size-list", "[3, 3]"]
LIGHTCONV += ["--weight-softmax", "True", "--decoder-glu", "True"]
TRANSLATION = ["--task", "translation", "--source-lang", "fr", "--target-lang", "en"]
SMALL = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--dropout", "0"]
SEQ2SEQ = [*TRANSLATION, "--arch", "transformer", *SMALL, "--encoder-layers", "1"]
SEQ2SEQ += ["--decoder-layers", "1", "--encoder-attention-heads", "2"]
SEQ2SEQ += ["--decoder-attention-heads", "2"]
LSTM_SEQ2SEQ = [*TRANSLATION, "--arch", "lstm", *SMALL, "--decoder-out-embed-dim", "16"]
MODELS = {
    "transformer_lm": TRANSFORMER,
    "transformer_lm tied": TIED_TRANSFORMER,
    "lstm_lm": LSTM,
    "lstm_lm tied": [*LSTM, "--share-decoder-input-output-embed"],
    "lstm_lm additional_fc": [*LSTM[:-4], "--decoder-out-embed-dim", "12", "--dropout", "0"],
    "lightconv_lm": LIGHTCONV,
    "lightconv_lm tied": [*LIGHTCONV, "--share-decoder-input-output-embed"],
    "fconv_lm": FCONV,
    "transformer": SEQ2SEQ,
    "lstm": LSTM_SEQ2SEQ,
}
