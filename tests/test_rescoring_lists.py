"""fairseq_bnce.rescoring: lists in and out, byte for byte, and the features added to them."""

from collections import Counter, namedtuple

import numpy as np
import pytest
from tools import write_lines

from fairseq_bnce.errors import InputError
from fairseq_bnce.rescoring import lists, weights
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.lists import KaldiFormat, MosesFormat
from fairseq_bnce.text import reading

pytestmark = pytest.mark.modern

Score = namedtuple("Score", "words total oov")


class FakeScorer:
    """-1 nat a word, -1 for </s>, and -0.1234567 more for each <unk>; remembers what it scored."""

    exact = False

    def __init__(self):
        self.scored = []

    def score_stream(self, sentences):
        for sentence in sentences:
            self.scored.append(sentence)
            words = [*sentence.split(), "</s>"]
            oov = sentence.split().count("oov")
            yield Score(words, -len(words) - 0.1234567 * oov, oov)


def parse(text, number=1):
    return lists.parse(reading.Line(text, "list", number))


def read(tmp_path, content, name="list"):
    path = tmp_path / name
    path.write_bytes(content)
    return reading.numbered_lines(str(path))


def test_lines_are_cut_at_line_feeds_and_come_back_byte_for_byte(tmp_path):
    content = "a\u2028b\r\n".encode() + b"\xff\xfe x\n" + "\ufeffé".encode()
    found = list(read(tmp_path, content))
    assert [one.number for one in found] == [1, 2, 3]
    assert [reading.to_bytes(one.text) for one in found] == content.split(b"\n")
    assert reading.readable(found[1].text) == "\ufffd\ufffd x"


# ---------------------------------------------------------------- Moses

PLAIN = "0 ||| a b ||| LM0= -1.5 TM0= 1 2 ||| -7.25"


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("LM0= -1.5 TM0= 1 2", {"LM0": (-1.5,), "TM0": (1.0, 2.0)}),
        ("LM0=-1.5 TM0=1", {"LM0": (-1.5,), "TM0": (1.0,)}),
        ("d: 0 -1 lm: -2 lm: -3", {"d": (0.0, -1.0), "lm": (-2.0, -3.0)}),
        ("-1 -2", {"": (-1.0, -2.0)}),
        ("pp_a=b=1 x= 1e-3", {"pp_a=b": (1.0,), "x": (0.001,)}),
        ("empty= x= 1", {"empty": (), "x": (1.0,)}),
        ("", {}),
    ],
)
def test_styles_of_features(features, expected):
    found = parse(f"007 |||  a \u00a0b ||| {features} ||| 1")
    assert (found.list_id, found.words) == ("7", "a b")
    assert found.features == {**expected, "score": (1.0,)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
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
    ],
)
def test_all_but_the_addition_stays_as_it_was(before, after):
    form, hypothesis = MosesFormat(), parse(before)
    assert form.annotated(hypothesis) == before
    hypothesis.added.update(BNCE=-3.5, N=2.0)
    assert form.annotated(hypothesis) == after.format("-7.25")
    assert form.rescored(hypothesis, 0.5) == after.format("0.5")
    again = parse(form.annotated(hypothesis)).features
    assert again["BNCE"] == (-3.5,) and again["score"] == (-7.25,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 ||| a",
        "0 ||| a ||| x= 1",
        "0 ||| a |||  ||| ",
        " ||| a ||| x= 1 ||| 2",
        "0 ||| a ||| x= y ||| 2",
        "0 ||| a ||| x= 1 ||| two",
    ],
)
def test_a_malformed_line_is_named(text):
    with pytest.raises(InputError, match="list, line 17: "):
        parse(text, 17)


def test_numbers_as_they_are_written():
    found = [lists.format_number(x) for x in (-12.5, 3.0, -0.0000001, 1e-5, -123456.7890123)]
    assert found == ["-12.5", "3", "0", "0.00001", "-123456.789012"]


def test_references_of_moses_lists(tmp_path):
    (tmp_path / "a").write_bytes("one\u00a0two\tc \x0c\n\n".encode() + b"\xff\n")
    write_lines(tmp_path / "b", ["x", "y", "z"])
    write_lines(tmp_path / "c", ["x"])
    a, b, c = (str(tmp_path / name) for name in "abc")
    want = {"0": ["one two c", "x"], "1": ["", "y"], "2": ["\ufffd", "z"]}
    assert MosesFormat().references([a, b]) == want
    with pytest.raises(InputError):
        MosesFormat().references([a, c])


# ---------------------------------------------------------------- Kaldi


def kaldi(tmp_path, text, **costs):
    for name, content in costs.items():
        (tmp_path / name).write_text(content)
    form = KaldiFormat({name: str(tmp_path / name) for name in costs})
    return form, list(form.hypotheses(read(tmp_path, text.encode())))


def test_kaldi_lists_with_costs(tmp_path):
    form, found = kaldi(
        tmp_path,
        "u-a-1 x y\nu-a-2 x\nv-1\n",
        ac="u-a-1 3\nu-a-2 4.5\nv-1 -1\n",
        lm="u-a-1 1\nu-a-2 2\nv-1 3\n",
    )
    assert [(one.list_id, one.words) for one in found] == [("u-a", "x y"), ("u-a", "x"), ("v", "")]
    assert [one.features for one in found] == [
        {"ac": (-3.0,), "lm": (-1.0,)},
        {"ac": (-4.5,), "lm": (-2.0,)},
        {"ac": (1.0,), "lm": (-3.0,)},
    ]
    found[0].added["BNCE"] = -12.5
    assert form.annotated(found[0]) == "u-a-1 12.5"
    found[0].added["N"] = -2.0
    assert form.annotated(found[0]) == "u-a-1  [ 12.5 2 ]"
    assert form.rescored(found[0], 1.0) == "u-a-1 x y"
    assert [form.best(one, 1.0) for one in found] == ["u-a x y", "u-a x", "v"]


@pytest.mark.parametrize(
    ("text", "cost", "named"),
    [
        ("utterance x\n", "utterance 1\n", "list, line 1: "),
        ("\n", "\n", "list, line 1: "),
        ("1089-134686-0000 x\n", "1089-134686-0000 1\n", "list, line 1: "),  # no n-best list
        ("u-1 x\nu-1 y\n", "u-1 1\nu-1 2\n", "list, line 2: "),
        ("u-1 x\n", "u-2 1\n", "ac, line 1: "),
        ("u-1 x\n", "u-1 1 2\n", "ac, line 1: "),
        ("u-1 x\n", "", "ac: "),
        ("u-1 x\n", "u-1 1\nu-2 1\n", "NBEST: "),
    ],
)
def test_malformed_kaldi_lists(tmp_path, text, cost, named):
    with pytest.raises(InputError, match=named):
        kaldi(tmp_path, text, ac=cost)


def test_references_of_kaldi_lists(tmp_path):
    write_lines(tmp_path / "a", ["u x y", "v", "w"])
    write_lines(tmp_path / "b", ["v z", "u x"])
    found = KaldiFormat({}).references([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found == {"u": ["x y", "x"], "v": ["", "z"]}


# ---------------------------------------------------------------- features


def nbests(*texts):
    """Lists 0, 1, ... of the hypotheses that are separated by slashes."""
    for number, text in enumerate(texts):
        words = [parse(f"{number} ||| {words} ||| x= 1 ||| 1") for words in text.split("/")]
        yield lists.NBest(str(number), words)


def test_every_distinct_hypothesis_is_scored_once():
    scorer = FakeScorer()
    added = Added({"LM": scorer}, make_words=str.lower)
    found = list(add_features(nbests("A b/a oov/a B", "a  b/", "\udcff"), added))
    assert Counter(scorer.scored) == Counter(["a b", "a oov", "", "\ufffd"])
    values = [[one.added["LM"] for one in nbest.hypotheses] for nbest in found]
    assert values == [[-3.0, -3.123457, -3.0], [-3.0, -1.0], [-2.0]]


def test_counts_and_several_scores():
    added = Added({"LM": FakeScorer(), "LMExact": FakeScorer()}, "N", "OOV", count_sign=-1)
    (found,) = add_features(nbests("a oov oov"), added)
    values = found.hypotheses[0].added
    assert list(values) == added.names() == ["LM", "LMExact", "N", "OOV"]
    assert (values["N"], values["OOV"]) == (-3.0, -2.0)


def test_a_feature_that_is_there_already():
    with pytest.raises(InputError):
        list(add_features(nbests("a"), Added({"x": None})))


def test_few_lists_are_read_ahead():
    taken = []

    def source():
        for nbest in nbests(*["a/b/c"] * 10):
            taken.append(nbest.list_id)
            yield nbest

    found = add_features(source(), Added({"LM": FakeScorer()}), window=4)
    assert next(found).list_id == "0" and taken == ["0", "1"]
    assert [one.list_id for one in found] == [str(number) for number in range(1, 10)]


# ---------------------------------------------------------------- weights


def test_weights_of_a_command_and_of_a_file(tmp_path):
    want = {"LM": (0.5,), "TM": (1.0, -2.0), "x=y": (-1.0,)}
    assert weights.read_weights("LM=0.5, TM=1 -2,x=y=-1") == want
    write_lines(tmp_path / "w=1", ["# of today", "LM= 0.5", "", "  # and", "TM= 1 -2", "x=y= -1"])
    assert weights.read_weights(str(tmp_path / "w=1")) == want
    write_lines(tmp_path / "w", weights.weight_lines(want))
    assert weights.read_weights(str(tmp_path / "w")) == want


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("LM=1,TM=x", "item 2: "),
        ("LM=nan", "item 1: "),
        ("=1", "item 1: "),
        ("TM=1 LM=2", "item 1: "),
        ("none", "none: "),
        ("#=", "--weights: "),
    ],
)
def test_weights_that_are_none(given, named):
    with pytest.raises(InputError, match=named):
        weights.read_weights(given)


def test_features_as_columns_and_back():
    first = lists.NBest("0", [parse("0 ||| a ||| x= 1 2 ||| 3"), parse("0 ||| b ||| s=4 ||| 5")])
    space = weights.Space(["score", "x", "s"], first)
    np.testing.assert_array_equal(space.matrix(first), [[3, 1, 2, 0], [5, 0, 0, 4]])
    vector = space.vector({"x": (0.5, 0.25), "score": (1.0,)})
    np.testing.assert_array_equal(vector, [1, 0.5, 0.25, 0])
    assert space.weights(vector) == {"score": (1.0,), "x": (0.5, 0.25), "s": (0.0,)}
    for features in ("x= 1", "x= 1 nan", "x= 1 s= 2 3"):
        with pytest.raises(InputError, match="line 7: "):
            space.matrix(lists.NBest("1", [parse(f"1 ||| a ||| {features} ||| 3", 7)]))
    with pytest.raises(InputError):
        space.vector({"x": (1.0,)})  # of two
    with pytest.raises(InputError):
        weights.Space(["y"], first)


def test_a_feature_that_the_first_list_lacks_has_the_size_of_its_weights():
    first = lists.NBest("0", [parse("0 ||| a ||| x= 1 ||| 3")])
    second = lists.NBest("1", [parse("1 ||| a ||| x= 1 s= 4 5 ||| 3")])
    given = {"x": (1.0,), "s": (0.5, 0.25)}
    space = weights.Space(["x", "s"], first, given)
    np.testing.assert_array_equal(space.vector(given), [1, 0.5, 0.25])
    np.testing.assert_array_equal(space.matrix(first), [[1, 0, 0]])
    with pytest.raises(InputError):
        space.check_met()
    np.testing.assert_array_equal(space.matrix(second), [[1, 4, 5]])
    space.check_met()


def test_ranking_keeps_the_order_of_equals():
    matrix = np.array([[1.0, 0], [2, 0], [0, 1], [2, 0]])
    order, totals = weights.ranking(matrix, np.array([1.0, 2.0]))
    assert order.tolist() == [1, 2, 3, 0]
    np.testing.assert_array_equal(totals, [1, 2, 2, 2])
    for columns in (8, 16, 31):  # a BLAS would round equal rows differently
        row, vector = np.random.default_rng(1).normal(size=(2, columns))
        order, _ = weights.ranking(np.tile(row, (39, 1)), vector)
        assert order.tolist() == list(range(39))
