"""What ``fairseq-bnce`` refuses: the error names the thing, and nothing is written or changed."""

import shlex

import pytest
from scoring_models import ADAPTIVE, FEW_TARGETS
from test_get_data import make_tar

# In place of the path of a model that is trained.
MODELS = {"LSTM": "lstm_lm", "RNN": "rnn_lm", "TRANSFORMER": "transformer_lm"}
MODELS.update(BOTH="lbl_lm both sides", FEW=FEW_TARGETS, ADAPTIVE=ADAPTIVE)
FILES = {
    "text": "w1 w2 w3\n\nw7 unheard of w9\n",
    "tab": "w1\t-2\n",
    "m.pt": "a model",
    "nbest": "0 ||| w1 w2 ||| TM= -1 ||| -1\n0 ||| w1 ||| TM= -2 ||| 2\n1 |||  ||| TM= 3 ||| 3\n",
    "kaldi": "u-1 w1 w2\n",
    "costs": "u-1 1\n",
    "reference": "u w1 w2\n",
    "json": '{"id": 7, "nbest": [{"text": "w1"}]}\n',
    "weights": "# tuned\nTM= 1 # of two\n",
    "out.part": "0 ||| a ||| TM= 1 ||| 1\n",
    "diagnosis.json": "w1 w2\n",
    "questions": "1a) w1 [w2]\n1b) w1 [w3]\n",
    "q.csv": "id,question,a),b),c),d),e)\n1,_____ a,a,b,c,d,e\n2,_____ b,a,b,c,d,e\n",
    "a.csv": "id,answer\n1,a\n",  # of two
    "one": "a b\n",
    "blank": "\n \n",
}
SOME = FILES["nbest"].splitlines()[0]
SCORE = [
    ("none", "none"),
    ("here", "here"),
    ("text --data here", "--data"),
    ("text --path none.pt", "--path"),
    ("text --mix-with none.pt", "--mix-with none.pt: "),
    ("text --mix-with given", "--mix-with given: required", "PK\3\4, no archive"),
    ("text --log-z-shift much", "--log-z-shift"),
    ("text --device abacus", "--device"),
    ("text --user-dir none", "--user-dir"),
    ("text --tokenize elvish", "'elvish'"),
    ("text --batch-tokens 0", "--batch-tokens:"),
    ("text --path BOTH --document", "--document: "),
    ("text --path TRANSFORMER --document --context-window 99", "--context-window: "),
    ("text --out text", "--out"),
    *((f"--shard 1/2 {name}", "--shard") for name in ("-", "/dev/null")),
    ("--shard 1/2 --document text", "--shard"),
    ("--given given", "line 2", "w1\tw2\nw1 w2\n"),
    ("--given --nemo 1 0 tab", "--given"),
    ("--given --path BOTH tab", "--given"),
    *(("--nemo 1 0 given", "line 2", f"w1\t-1\n{bad}\n") for bad in ("w1 -3.5", "w1\tw2\t-3.5")),
    ("text --path LSTM --mix-with BOTH", "--mix-with"),
    ("text --path BOTH --mix-with RNN", "--mix-with"),
    *((f"text {flags}", "--mix-with") for flags in ("--mix-tune text", "--mix-weights-out w")),
    ("text --mix-with RNN --mix-weight given --out given", "--out", '{"weights": [0.3, 0.7]}'),
    ("text --mix-weight 0.4", "--mix-with"),
    *(
        (f"text --mix-with RNN --mix-weight {weight}", "--mix-weight")
        for weight in ("0", "1.5", "nan", "1,0", "0.2,0.3,0.5", "half")
    ),
]
RESCORE = [
    ("nbest", "--path"),
    ("nbest --exact --weights TM=1", "--exact"),
    # A value of a list is not written over.
    ("nbest --path RNN --feature TM", "'TM'"),
    ("json --path RNN --format jsonl --feature text", "'text'"),
    ("nbest --path x --best x", "--best"),
    ("nbest --weights 'TM=1 2'", "--weights"),
    ("nbest --weights weights", "weights, line 2"),
    *(
        (f"nbest --weights {given}", named)
        for given, named in (
            *(("TM=1,LM=x", "line 2"), ("TM=nan", "line 1"), ("=1", "line 1"), ("none", "none: ")),
            *(("'TM=1 LM=2'", "line 1"), ("#=", "--weights: ")),
        )
    ),
    ("nbest --tune none", "none"),
    ("nbest --tune nbest --path x --best none/file", "none/file: required"),
    ("nbest --tune nbest --path x --best here", "here: required"),
    ("nbest --weights a=1 --out out --best ./out", "error: --best: "),
    ("out.part --weights a=1 --out out", "error: --out: "),
    ("nbest --tune out --weights-out out", "error: --weights-out: "),
    ("nbest --path m.pt --out dict.txt", "error: --out: "),
    ("nbest --weights TM=1 --cost a=nbest", "--cost: "),
    ("nbest --format srilm --weights ascore=1 --cost a=costs", "--cost: "),
    ("kaldi --format kaldi --weights a=1 --cost costs", "--cost: "),
    ("nbest --weights TM=1 --weights-out out", "--weights-out: "),
    ("nbest --weights TM=1 --tune-features TM,score", "--tune-features: "),
    ("given --weights score=1", "given, line 1: ", "0 ||| a ||| score= 5 ||| 1\n"),
    ("nbest --weights TM=1 --out link", "error: --out: "),
    ("link --weights TM=1 --best nbest", "error: --best: "),
    ("nbest --tune weights --weights-out link", "error: --weights-out: "),
    ("given --path RNN --tune given", "given: required", ""),
    ("nbest --weights TM=1 nbest", "--weights: "),
    ("nbest --tune nbest --tune-features score,TM,MT --weights MT=1", "'MT'"),
    ("nbest --weights TM=1,MT=1 --path none.pt --best best", "'MT'"),
    # Lists are read to their end before the model: else hours of scoring would end so.
    *(
        (f"given {flags} --path none.pt", "line 2", f"{SOME}\n{last}\n")
        for flags, last in (
            ("--tune one", "1 ||| a ||| TM= -1 ||| -1"),
            ("--weights BNCE=1,TM=1 --ref one", "0 ||| a ||| TM= -1"),
            ("--weights BNCE=1,TM=1 --ref one", "0 ||| a ||| TM= nan ||| 1"),
            ("--weights BNCE=1,TM=1", "1 ||| a ||| TM= 1 2 ||| 1"),
        )
    ),
    ("nbest --path none.pt --metric wer --tune nbest --tune nbest", "--metric"),
    ("kaldi --path none.pt --format kaldi --tune reference", "--tune: required"),
    ("nbest --path none.pt --tune nbest --tune-features score", "--tune"),
]
OTHERS = {
    "complete": [
        ("questions --path m.pt --out here/questions", "--out: "),  # by whatever name
        ("questions --path m.pt --out here/m.pt", "--out: "),
        ("questions --path none --out out.csv", "none"),
    ],
    "diagnose": [
        ("text --path none.pt", "--path none.pt: required"),
        ("diagnosis.json --path RNN --out .", "--out: required"),
        ("text --path RNN --calibrate m.pt", "--overwrite"),
        ("text --path RNN --calibrate new.pt --offset 16", "--reduced-partition: contexts"),
        ("text --path RNN --calibrate new.pt --offset 65", "--reduced-partition: rows"),
        # A text behind --calibrate is taken for the name of the new checkpoint.
        *(
            (f"text --path RNN --calibrate {wrong} --overwrite", f"--calibrate {wrong}: required")
            for wrong in ("text", "none/x.pt", "here")
        ),
    ],
    "extend-vocabulary": [
        ("--path RNN --words given --out out", "--words", "w1\n"),
        ("--path RNN --words given --out out", "--words", "two words\n"),
        ("--path RNN --words given --out out --tokenize en", "--words", "don't\n"),
        ("--path RNN --text text --out here", "--out"),
        ("--path FEW --words given --out out", "--path", "new\n"),
        ("--path ADAPTIVE --words given --out out", "--path", "new\n"),
    ],
    "get-data": [
        ("ptb --out out --source none", "none"),
        ("ptb --out out --source wrong.tgz", "wrong.tgz"),
        ("ptb --out out --source cut-off.tgz", "cut-off.tgz"),
        ("mscc --out out", "Holmes_Training_Data.tar.xz"),
        ("ptb --source here --out here", "--out"),
        ("mscc --out out --questions x", "x: "),
        ("mscc --out out --questions q.csv --answers a.csv", "a.csv"),
        ("ptb --out out --split 1 0 0", "--split"),
    ],
    "prepare-text": [
        (f"--text-only --out out {flags}", *rest)
        for flags, *rest in (
            ("", "--train"),
            ("--train none", "none"),
            ("--train text --valid blank", "--valid"),
            ("--train text --input text", "--input"),
            ("--valid text", "--train"),
            ("--input text --split 0.5 0.2 0.2", "--split:"),
            ("--input one", "--split:"),
            ("--train text --dict none", "none"),
            ("--train text --language xx", "--language"),
            ("--train text --out text", "--out"),
            ("--train text --out here", "--out"),
            ("--test text --dict given", "--dict given, line 2", "a 3\n<unk> 5\n"),
            ("--test text --dict given", "--dict given, line 2", "a 3\na 2\n"),
            ("--test text --dict given", "--dict given, line 1", "a three\n"),
            ("--test text --dict given", "--dict given, line 1", ""),
            ("--test text --dict given", "--dict given: ", "\ufeffa 3\n"),
            ("--test text --dict given", "--dict given: ", "\u00e9 3\n".encode("latin-1")),
            ("--test text --dict given", "--dict given: ", "a 3\n".encode("utf-16")),
        )
    ],
}
SCORE = [(flags if "--path" in flags else f"{flags} --path LSTM", *rest) for flags, *rest in SCORE]
TABLE = [
    (command, *row)
    for command, rows in {"score": SCORE, "rescore": RESCORE, **OTHERS}.items()
    for row in rows
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    make_tar(tmp_path / "wrong.tgz", {"b.txt": "x"})
    cut_off = make_tar(tmp_path / "cut-off.tgz", {"ptb.train.txt": "a b\n" * 50_000})
    cut_off.write_bytes(cut_off.read_bytes()[:-100])
    (tmp_path / "link").symlink_to("nbest")
    (tmp_path / "here").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.modern
@pytest.mark.parametrize("row", TABLE, ids=lambda row: " ".join(map(str, row[:2])))
def test_refused(row, folder, language_model, command):
    name, flags, named, *given = row
    for content in given:
        content = content if isinstance(content, bytes) else content.encode()
        (folder / "given").write_bytes(content)
    before = {path: path.is_dir() or path.read_bytes() for path in folder.iterdir()}
    words = shlex.split(flags)
    arguments = [language_model(MODELS[word]) if word in MODELS else word for word in words]
    status, output, errors = command(name, *arguments, model=None)
    assert status == 2 and (not output or name == "get-data")  # it names the corpus
    last = errors.splitlines()[-1]
    assert last.startswith("fairseq-bnce") and ": error: " in last and named in last
    assert {path: path.is_dir() or path.read_bytes() for path in folder.iterdir()} == before
