"""fairseq_bnce.rescoring: lists in and out, byte for byte, and weights."""

import numpy as np
import pytest
from tools import write_lines

from fairseq_bnce.errors import InputError
from fairseq_bnce.rescoring import lists, weights
from fairseq_bnce.rescoring.formats import FORMATS, moses
from fairseq_bnce.text import reading

pytestmark = pytest.mark.modern


def parse(text):
    return moses.parse(reading.Line(text, "list", 1))


# ---------------------------------------------------------------- formats

PLAIN = "0 ||| a b ||| LM0= -1.5 TM0= 1 2 ||| -7.25"


STYLES = [
    ("LM0= -1.5 TM0= 1 2", {"LM0": (-1.5,), "TM0": (1.0, 2.0)}),
    ("LM0=-1.5 TM0=1", {"LM0": (-1.5,), "TM0": (1.0,)}),
    ("d: 0 -1 lm: -2 lm: -3", {"d": (0.0, -1.0), "lm": (-2.0, -3.0)}),
    ("-1 -2", {"": (-1.0, -2.0)}),
    ("pp_a=b=1 x= 1e-3", {"pp_a=b": (1.0,), "x": (0.001,)}),
    ("empty= x= 1", {"empty": (), "x": (1.0,)}),
    ("", {}),
]


@pytest.mark.parametrize(("features", "expected"), STYLES)
def test_styles_of_features(features, expected):
    found = parse(f"007 |||  a \u00a0b ||| {features} ||| 1")
    assert (found.list_id, found.words) == ("7", "a b")
    assert found.features == {**expected, "score": (1.0,)}


ADDITIONS = [
    (PLAIN, "0 ||| a b ||| LM0= -1.5 TM0= 1 2 BNCE= -3.5 N= 2 ||| {}"),
    ("0 ||| a ||| x=1 ||| -7.25", "0 ||| a ||| x=1 BNCE=-3.5 N=2 ||| {}"),
    ("0 ||| a |||  ||| -7.25", "0 ||| a ||| BNCE= -3.5 N= 2 ||| {}"),
    (
        "0 |||  ||| x= 1 ||| -7.25 ||| 0-0 |||\t1",
        "0 |||  ||| x= 1 BNCE= -3.5 N= 2 ||| {} ||| 0-0 |||\t1",
    ),
    (
        "0  ||| \udcff  b ||| d: 01 |||  -7.25 \r",
        "0  ||| \udcff  b ||| d: 01 BNCE= -3.5 N= 2 |||  {} \r",
    ),
]


@pytest.mark.parametrize(("before", "after"), ADDITIONS)
def test_all_but_the_addition_stays_as_it_was(before, after):
    form, hypothesis = FORMATS["moses"], parse(before)
    nbest = lists.NBest("0", [hypothesis])
    assert form.written(nbest) == [before]
    hypothesis.added.update(BNCE=-3.5, N=2.0)
    assert form.written(nbest) == [after.format("-7.25")]
    assert form.written(nbest, [0.5]) == [after.format("0.5")]
    assert form.best(hypothesis, 0.5) == before.split("|||")[1].strip()
    again = parse(*form.written(nbest)).features
    assert again["BNCE"] == (-3.5,) and again["score"] == (-7.25,)


def nbest_lists(tmp_path, name, text, files):
    """Of a format, from a file ``list`` with this text, the other files being Kaldi's costs."""
    text = text.format(folder=tmp_path) if name == "srilm" else text
    for file, content in {"list": text, **files}.items():
        (tmp_path / file).write_text(content)
    costs = {file: str(tmp_path / file) for file in files if name == "kaldi"}
    return list(FORMATS[name].read(reading.numbered_lines(str(tmp_path / "list")), costs))


KALDI = ("kaldi", "u-a-1 x  y\nu-a-2 x\n", {"ac": "u-a-1 3\nu-a-2 4\n", "lm": "u-a-1 1\nu-a-2 2\n"})
SRILM = ("srilm", "{folder}/u-a\n", {"u-a": "-3 -1 2 <s> x  y </s>\n-4 -2 1 x\n"})
JSON = '{"at": 1, "id": "u-a", "nbest": [{"text": "x  y", "n": -2%s}, {"text": "x", "score": %s}]}'


IN_AND_OUT = [
    (
        KALDI,
        {"ac": (-3.0,), "lm": (-1.0,)},
        ["u-a-1  [ 12.5 2 ]", "u-a-2  [ 12.5 2 ]"],
        ["u-a-1 x  y", "u-a-2 x"],
        "u-a x  y",
    ),
    (
        SRILM,
        {"ascore": (-3.0,), "lscore": (-1.0,), "nwords": (2.0,)},
        ["u-a -12.5 -2", "u-a -12.5 -2"],
        ["u-a -3 -1 2 <s> x  y </s>", "u-a -4 -2 1 x"],
        "u-a x y",
    ),
    (
        ("jsonl", JSON % ("", 1), {}),
        {"n": (-2.0,)},
        [JSON % (', "BNCE": -12.5, "N": -2.0', '1, "BNCE": -12.5, "N": -2.0')],
        [JSON % (', "BNCE": -12.5, "N": -2.0, "score": 0.5', '0.5, "BNCE": -12.5, "N": -2.0')],
        "x  y",
    ),
]


@pytest.mark.parametrize(("given", "features", "added", "ranked", "best"), IN_AND_OUT)
def test_lists_in_and_out(tmp_path, given, features, added, ranked, best):
    (nbest,), form = nbest_lists(tmp_path, *given), FORMATS[given[0]]
    assert [(one.list_id, one.words) for one in nbest.hypotheses] == [("u-a", "x y"), ("u-a", "x")]
    for one in nbest.hypotheses:
        one.added.update(BNCE=-12.5, N=-2.0)
    assert form.written(nbest) == added and form.written(nbest, [0.5, 0.5]) == ranked
    assert nbest.hypotheses[0].features == features
    assert form.best(nbest.hypotheses[0], 0.5) == best


MOSES = ["", "0 ||| a", "0 ||| a ||| x= 1", "0 ||| a |||  ||| ", " ||| a ||| x= 1 ||| 2"]
MOSES += ["0 ||| a ||| x= y ||| 2", "0 ||| a ||| x= 1 ||| two"]
NO_JSON = '|7|{|{"id":7}|{"nbest":[{"text":"a"}]}|{"id":7,"nbest":[]}|{"id":7,"nbest":7}'
NO_JSON += '|{"id":7,"nbest":["a"]}|{"id":7,"nbest":[{"text":7}]}'
NO_COSTS = ["1 2", "[ 1 2", "[ ]", "x"]
FAIRSEQ = {"NBEST: ": [PLAIN, ""], "line 2: ": ["H-1\t-1\ty\nF-1\tscore= 3"]}
FAIRSEQ["line 1: "] = ["H-1\t-0.5", "H-1\tx\ty"]


MALFORMED = [
    *(("moses", f"{PLAIN}\n{text}\n", {}, "list, line 2: ") for text in MOSES),
    *(
        ("jsonl", f"{JSON % ('', 1)}\n{text}\n", {}, "list, line 2: ")
        for text in NO_JSON.split("|")
    ),
    ("kaldi", "utterance x\n", {"ac": "utterance 1\n"}, "list, line 1: "),
    ("kaldi", "\n", {"ac": "\n"}, "list, line 1: "),
    # No n-best list:
    ("kaldi", "1089-134686-0000 x\n", {"ac": "1089-134686-0000 1\n"}, "list, line 1: "),
    ("kaldi", "u-1 x\nu-1 y\n", {"ac": "u-1 1\nu-1 2\n"}, "list, line 2: "),
    ("kaldi", "u-1 x\n", {"ac": "u-2 1\n"}, "ac, line 1: "),
    *(("kaldi", "u-1 x\n", {"ac": f"u-1 {bad}\n"}, "ac, line 1: ") for bad in NO_COSTS),
    *(("fairseq", text, {}, named) for named in FAIRSEQ for text in FAIRSEQ[named]),
    ("kaldi", "u-1 x\n", {"ac": ""}, "ac: "),
    ("kaldi", "u-1 x\n", {"ac": "u-1 1\nu-2 1\n"}, "NBEST: "),
    ("srilm", "{folder}/none\n", {}, "none: "),
    ("srilm", "{folder}/empty\n", {"empty": ""}, "list, line 1: "),
    ("srilm", "{folder}/u\n", {"u": "-1 -2 0\n-1 -2\n"}, "u, line 2: "),
    ("srilm", "{folder}/u\n", {"u": "NBestList1.0\n(-1) x y\n"}, "u, line 1: "),
    ("srilm", "{folder}/u\n", {"u": "-1 -2 x y\n"}, "u, line 1: "),
]


@pytest.mark.parametrize(("name", "text", "files", "named"), MALFORMED)
def test_malformed_lists_are_named(tmp_path, name, text, files, named):
    with pytest.raises(InputError, match=named):
        nbest_lists(tmp_path, name, text, files)


def test_numbers_as_they_are_written():
    found = [lists.format_number(x) for x in (-12.5, 3.0, -0.0000001, 1e-5, -123456.7890123)]
    assert found == ["-12.5", "3", "0", "0.00001", "-123456.789012"]


WANT = {"0": ["one two c", "x"], "1": ["", "y"], "2": ["\ufffd", "z"]}
TEXTS = ("u x y\nv\nw\n", "v z\nu x\n", {"u": ["x y", "x"], "v": ["", "z"]})
OBJECTS = ['{"id": 7, "text": "x y"}\n{"id": "v", "text": ""}\n', '{"id": "7", "text": "x"}\n']


REFERENCES = [
    ("moses", "one\u00a0two\tc \x0c\n\n\udcff\n", "x\ny\nz\n", WANT),
    ("moses", "x\ny\n", "x\n", None),
    ("kaldi", *TEXTS),
    ("srilm", *TEXTS),
    ("jsonl", *OBJECTS, {"7": ["x y", "x"]}),
    ("jsonl", '{"id": 7}\n', "", None),
]


@pytest.mark.parametrize(("name", "a", "b", "want"), REFERENCES)
def test_references(tmp_path, name, a, b, want):
    (tmp_path / "a").write_bytes(reading.to_bytes(a))
    (tmp_path / "b").write_bytes(reading.to_bytes(b))
    names = [str(tmp_path / "a"), str(tmp_path / "b")]
    if want is not None:
        assert FORMATS[name].references(names) == want
    else:
        with pytest.raises(InputError):
            FORMATS[name].references(names)


# ---------------------------------------------------------------- weights


def test_weights_of_a_command_and_of_a_file(tmp_path):
    want = {"LM": (0.5,), "TM": (1.0, -2.0), "x=y": (-1.0,)}
    assert weights.read_weights("LM=0.5, TM=1 -2,x=y=-1") == want
    write_lines(tmp_path / "w=1", ["# of today", "LM= 0.5", "", "  # and", "TM= 1 -2", "x=y= -1"])
    assert weights.read_weights(str(tmp_path / "w=1")) == want
    write_lines(tmp_path / "w", weights.weight_lines(want))
    assert weights.read_weights(str(tmp_path / "w")) == want


def test_ranking_keeps_the_order_of_equals():
    matrix = np.array([[1.0, 0], [2, 0], [0, 1], [2, 0]])
    order, totals = weights.ranking(matrix, np.array([1.0, 2.0]))
    assert order.tolist() == [1, 2, 3, 0]
    np.testing.assert_array_equal(totals, [1, 2, 2, 2])
    for columns in (8, 16, 31):  # a BLAS would round equal rows differently
        row, vector = np.random.default_rng(1).normal(size=(2, columns))
        order, _ = weights.ranking(np.tile(row, (39, 1)), vector)
        assert order.tolist() == list(range(39))
