"""fairseq_bnce.rescoring: lists in and out, byte for byte, and the features added to them."""

from collections import Counter

import numpy as np
import pytest
from tools import write_lines

from fairseq_bnce.errors import InputError
from fairseq_bnce.rescoring import language_model, lists, moses, weights
from fairseq_bnce.rescoring.kaldi import KaldiFormat
from fairseq_bnce.rescoring.language_model import Added, add_features
from fairseq_bnce.rescoring.moses import MosesFormat
from fairseq_bnce.rescoring.tuning import Lists
from fairseq_bnce.text import reading

pytestmark = pytest.mark.modern


class FakeScore:
    def __init__(self, words, total, oov):
        self.words, self.total, self.oov = words, total, oov


class FakeScorer:
    """-1 nat a word, -1 for </s>, and -0.1234567 for each <unk> more; remembers what it scored."""

    exact = False

    def __init__(self):
        self.scored = []

    def score_stream(self, sentences):
        for sentence in sentences:
            self.scored.append(sentence)
            words = [*sentence.split(), "</s>"]
            oov = sentence.split().count("oov")
            yield FakeScore(words, -len(words) - 0.1234567 * oov, oov)


def line(text, number=1):
    return reading.Line(text, "list", number)


def parse(text):
    return moses.parse(line(text))


def read(tmp_path, content, name="list"):
    path = tmp_path / name
    path.write_bytes(content)
    return reading.LineSource(str(path))


# ---------------------------------------------------------------- lines


def test_lines_are_cut_at_line_feeds_and_come_back_byte_for_byte(tmp_path):
    content = "a\u2028b\r\n".encode() + b"\xff\xfe x\n" + "\ufeffé".encode()
    found = list(read(tmp_path, content))
    assert [one.number for one in found] == [1, 2, 3]
    assert [reading.to_bytes(one.text) for one in found] == content.split(b"\n")
    assert reading.readable(found[1].text) == "\ufffd\ufffd x"


# ---------------------------------------------------------------- Moses

PLAIN = "0 ||| a b ||| LM0= -1.5 TM0= 1 2 ||| -7.25"


def test_fields_of_a_line():
    found = parse(PLAIN)
    assert (found.list_id, found.words) == ("0", "a b")
    assert found.features == {"LM0": (-1.5,), "TM0": (1.0, 2.0), "score": (-7.25,)}


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("LM0=-1.5 TM0=1", {"LM0": (-1.5,), "TM0": (1.0,)}),
        ("d: 0 -1 lm: -2", {"d": (0.0, -1.0), "lm": (-2.0,)}),
        ("-1 -2", {"": (-1.0, -2.0)}),
        ("pp_a=b=1 x= 1e-3", {"pp_a=b": (1.0,), "x": (0.001,)}),
        ("empty= x= 1", {"empty": (), "x": (1.0,)}),
        ("", {}),
    ],
)
def test_styles_of_features(features, expected):
    found = parse(f"3 ||| a ||| {features} ||| 1").features
    assert {name: value for name, value in found.items() if name != "score"} == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PLAIN, "0 ||| a b ||| LM0= -1.5 TM0= 1 2 BNCE= -3.5 N= 2 ||| {}"),
        ("0 ||| a ||| x=1 ||| -7.25", "0 ||| a ||| x=1 BNCE=-3.5 N=2 ||| {}"),
        ("0 ||| a |||  ||| -7.25", "0 ||| a ||| BNCE= -3.5 N= 2 ||| {}"),
        ("0|||a|||x= 1|||-7.25", "0|||a|||x= 1 BNCE= -3.5 N= 2|||{}"),
        ("0 |||  ||| x= 1 ||| -7.25 ||| 0-0 |||\t1", None),
        ("0  ||| \u00a0a  b ||| x= 01  ||| -7.25 \r", None),
        ("0 ||| \udcff ||| d: 1 ||| -7.25 ||| ", None),
    ],
)
def test_all_but_the_addition_stays_as_it_was(before, after):
    form, hypothesis = MosesFormat(), parse(before)
    assert form.annotated(hypothesis) == before
    hypothesis.added.update(BNCE=-3.5, N=2.0)
    annotated = form.annotated(hypothesis)
    if after is not None:
        assert annotated == after.format("-7.25")
        assert form.rescored(hypothesis, 0.5) == after.format("0.5")
    sign = "=" if "x=1" in before else "= "
    rest = annotated.replace(f" BNCE{sign}-3.5 N{sign}2", "", 1)
    assert rest == before.replace("a |||  |||", "a ||| |||")
    assert form.rescored(hypothesis, -7.25) == annotated
    again = parse(annotated)
    assert again.features["BNCE"] == (-3.5,) and again.features["score"] == (-7.25,)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "''"),
        ("0 ||| a ||| x= 1", "'0 ||| a ||| x= 1'"),
        (" ||| a ||| x= 1 ||| 2", "' ||| a ||| x= 1 ||| 2'"),
        ("0 ||| a ||| x= y ||| 2", "a number as a feature's value, got 'y'"),
        ("0 ||| a ||| x= 1 ||| two", "a number as the score, got 'two'"),
        ("0 ||| a ||| x= 1 ||| ", "a number as the score, got ''"),
        ("0 ||| a ||| x= 1 x= 2 ||| 3", "every feature once, got 'x' twice"),
        ("0 ||| a ||| score= 1 ||| 3", "no feature of the name 'score'"),
    ],
)
def test_malformed_lines_name_the_line_and_what_was_expected(text, got):
    with pytest.raises(InputError) as caught:
        moses.parse(line(text, 17))
    message = str(caught.value)
    assert message.startswith("list, line 17: required")
    assert got in message
    if "number" not in got and "feature" not in got:
        assert "'id ||| hypothesis ||| features ||| score'" in message


def test_a_feature_that_is_there_already():
    nbest = lists.NBest("0", [parse("0 ||| a ||| BNCE= 1 ||| 3")])
    with pytest.raises(InputError, match="line 1: required"):
        list(add_features([nbest], Added({"BNCE": None})))


def test_numbers_as_they_are_written():
    found = [moses.format_number(x) for x in (-12.5, 3.0, -0.0000001, 1e-5, -123456.7890123)]
    assert found == ["-12.5", "3", "0", "0.00001", "-123456.789012"]


def test_neighbours_of_one_id_are_a_list_and_one_is_held_at_a_time():
    taken = []

    def source():
        for number, name in enumerate("0001122"):
            taken.append(number)
            yield parse(f"{name} ||| a ||| x= 1 ||| {number}")

    groups = lists.group(source())
    assert len(next(groups).hypotheses) == 3 and taken == [0, 1, 2, 3]
    assert [(one.list_id, len(one.hypotheses)) for one in groups] == [("1", 2), ("2", 2)]


def test_references_of_moses_lists(tmp_path):
    (tmp_path / "a").write_bytes(b"one\n\n\xff\n")
    (tmp_path / "b").write_bytes(b"x\ny\nz\n")
    (tmp_path / "c").write_bytes(b"x\n")
    names = [str(tmp_path / name) for name in "ab"]
    want = {"0": ["one", "x"], "1": ["", "y"], "2": ["\ufffd", "z"]}
    assert MosesFormat().references(names) == want
    assert parse("007 ||| a ||| x= 1 ||| 1").list_id == "7"
    with pytest.raises(InputError, match="c: required"):
        MosesFormat().references([names[0], str(tmp_path / "c")])
    with pytest.raises(InputError, match="a: required"):
        MosesFormat().references([str(tmp_path / "c"), names[0]])


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
        lm="u-a-1 1\n" * 0 + "u-a-1 1\nu-a-2 2\nv-1 3\n",
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
    assert [form.best(one) for one in found] == ["u-a x y", "u-a x", "v"]


@pytest.mark.parametrize(
    ("text", "cost", "message"),
    [
        (
            "utterance x\n",
            "",
            "list, line 1: required",
        ),
        ("-1 x\n", "", "list, line 1: required"),
        ("\n", "", "list, line 1: required"),
        ("u-01 x\n", "", "list, line 1: required"),
        ("1089-134686-0000 x\n", "", "list, line 1: required"),
        ("u-20210304 x\n", "", "list, line 1: required"),
        ("u-1 x\nu-1 y\n", "u-1 1\n" * 2, "list, line 2: required"),
        ("u-1 x\nv-1 y\nu-1 z\n", "u-1 1\nv-1 1\nu-1 1\n", "list, line 3: .*every key once"),
        ("u-1 x\n", "u-2 1\n", "ac, line 1: required"),
        ("u-1 x\n", "u-1 1 2\n", "ac, line 1: required"),
        ("u-1 x\n", "u-1 one\n", "ac, line 1: required"),
        ("u-1 x\n", "", r"ac: required"),
        (
            "u-1 x\n",
            "u-1 1\nu-2 1\n",
            "ac, line 2: required",
        ),
    ],
)
def test_malformed_kaldi_lists(tmp_path, text, cost, message):
    with pytest.raises(InputError, match=message):
        kaldi(tmp_path, text, ac=cost)


def test_references_of_kaldi_lists(tmp_path):
    form = KaldiFormat({})
    for name, text in (("a", "u x y\nv\n"), ("b", "v z\nu x\n"), ("c", "u x\n"), ("d", "u\nu\n")):
        (tmp_path / name).write_text(text)
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    assert form.references([a, b]) == {"u": ["x y", "x"], "v": ["", "z"]}
    with pytest.raises(InputError, match="c: required"):
        form.references([a, c])
    with pytest.raises(InputError, match="d, line 2: required"):
        form.references([d])


# ---------------------------------------------------------------- features


def nbests(*texts):
    """Lists 0, 1, ... of the hypotheses that are separated by slashes."""
    for number, text in enumerate(texts):
        yield lists.NBest(
            str(number),
            [parse(f"{number} ||| {words} ||| x= 1 ||| 1") for words in text.split("/")],
        )


def test_every_distinct_hypothesis_is_scored_once():
    scorer = FakeScorer()
    found = list(add_features(nbests("a b/a oov/a b", "a  b/"), Added({"LM": scorer})))
    assert Counter(scorer.scored) == Counter(["a b", "a oov", ""])
    values = [[one.added["LM"] for one in nbest.hypotheses] for nbest in found]
    assert values == [[-3.0, -3.123457, -3.0], [-3.0, -1.0]]


def test_counts_and_several_scores():
    added = Added({"LM": FakeScorer(), "LMExact": FakeScorer()}, "N", "OOV", count_sign=-1)
    assert added.names() == ["LM", "LMExact", "N", "OOV"]
    (found,) = add_features(nbests("a oov oov"), added)
    values = found.hypotheses[0].added
    assert list(values) == added.names()
    assert (values["N"], values["OOV"]) == (-3.0, -2.0)


def test_words_are_made_the_models_own_and_what_is_no_utf8_is_marked():
    scorer = FakeScorer()
    added = Added({"LM": scorer}, make_words=str.lower)
    list(add_features(nbests("A b/a B/\udcff"), added))
    assert scorer.scored == ["a b", "\ufffd"]


def test_few_lists_are_read_ahead():
    taken = []

    def source():
        for nbest in nbests(*["a/b/c"] * 10):
            taken.append(nbest.list_id)
            yield nbest

    found = add_features(source(), Added({"LM": FakeScorer()}), window=4)
    assert next(found).list_id == "0" and taken == ["0", "1"]
    assert [one.list_id for one in found] == [str(number) for number in range(1, 10)]
    assert language_model.WINDOW < 10_000


# ---------------------------------------------------------------- weights


def test_weights_of_a_command_and_of_a_file(tmp_path):
    want = {"LM": (0.5,), "TM": (1.0, -2.0)}
    assert weights.read_weights("LM=0.5, TM=1 -2") == want
    assert weights.read_weights("#x=1,LM=2") == {"#x": (1.0,), "LM": (2.0,)}
    (tmp_path / "w=1").write_text("# of today\nLM= 0.5\n\n  # and\nTM= 1 -2\n")
    assert weights.read_weights(str(tmp_path / "w=1")) == want
    (tmp_path / "w").write_text("\n".join(weights.weight_lines(want)))
    assert weights.read_weights(str(tmp_path / "w")) == want


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("LM=", "weights, item 1: required"),
        ("LM=1,TM=x", "weights, item 2: required"),
        ("LM=nan", "item 1: required"),
        ("=1", "item 1: required"),
        ("TM=1 LM=2", "item 1: required"),
        ("LM=1,LM=2", "item 2: required"),
        ("none", "none: required"),
        (",=", "item 2: required"),
    ],
)
def test_weights_that_are_none(given, message):
    with pytest.raises(InputError, match=message):
        weights.read_weights(given)


def test_features_as_columns_and_back():
    first = lists.NBest("0", [parse("0 ||| a ||| x= 1 2 ||| 3"), parse("0 ||| b ||| s=4 ||| 5")])
    space = weights.Space(["score", "x", "s"], first)
    np.testing.assert_array_equal(space.matrix(first), [[3, 1, 2, 0], [5, 0, 0, 4]])
    vector = space.vector({"x": (0.5, 0.25), "score": (1.0,)})
    np.testing.assert_array_equal(vector, [1, 0.5, 0.25, 0])
    assert space.weights(vector) == {"score": (1.0,), "x": (0.5, 0.25), "s": (0.0,)}
    with pytest.raises(InputError, match=r"line 1: required"):
        space.matrix(lists.NBest("1", [parse("1 ||| a ||| x= 1 ||| 3")]))
    with pytest.raises(InputError, match="line 1: required"):
        space.matrix(lists.NBest("1", [parse("1 ||| a ||| x= 1 nan ||| 3")]))
    with pytest.raises(InputError, match="weights: x requires 2, got 1"):
        space.vector({"x": (1.0,)})
    with pytest.raises(InputError, match="required a feature 'y'.*, got x, score, s alone"):
        weights.Space(["y"], first)


def test_a_feature_that_the_first_list_lacks_has_the_size_of_its_weights():
    first = lists.NBest("0", [parse("0 ||| a ||| x= 1 ||| 3")])
    second = lists.NBest("1", [parse("1 ||| a ||| x= 1 s= 4 5 ||| 3")])
    given = {"x": (1.0,), "s": (0.5, 0.25)}
    space = weights.Space(["x", "s"], first, given)
    np.testing.assert_array_equal(space.vector(given), [1, 0.5, 0.25])
    np.testing.assert_array_equal(space.matrix(first), [[1, 0, 0]])
    with pytest.raises(InputError, match="line 1: required"):
        space.check_met()
    np.testing.assert_array_equal(space.matrix(second), [[1, 4, 5]])
    space.check_met()
    other = weights.Space(["x"], first, {"x": (1.0, 2.0)})
    with pytest.raises(InputError, match="weights: x requires 1, got 2"):
        other.vector({"x": (1.0, 2.0)})


def test_ranking_keeps_the_order_of_equals():
    matrix = np.array([[1.0, 0], [2, 0], [0, 1], [2, 0]])
    order, totals = weights.ranking(matrix, np.array([1.0, 2.0]))
    assert order.tolist() == [1, 2, 3, 0]
    np.testing.assert_array_equal(totals, [1, 2, 2, 2])
    equals = np.tile([[1.0], [0.0]], (50, 1))
    order, _ = weights.ranking(equals, np.array([1.0]))
    assert order.tolist() == [*range(0, 100, 2), *range(1, 100, 2)]


@pytest.mark.parametrize("columns", [8, 16, 31])
def test_equals_are_equal_however_many_features_they_have(columns):
    """The first of equals stays first, in the lists and in what tuning takes for chosen."""
    generator = np.random.default_rng(1)
    for hypotheses in range(2, 40):
        row, vector = generator.normal(size=(2, columns))
        matrix = np.tile(row, (hypotheses, 1))
        order, _ = weights.ranking(matrix, vector)
        assert order.tolist() == list(range(hypotheses))
        lists = Lists.join([matrix], [np.zeros((hypotheses, 1), dtype=np.int64)])
        assert lists.best(vector).tolist() == [0]


def test_weights_are_read_as_they_were_written(tmp_path):
    """A sparse feature's name may hold what stands after a name."""
    written = {"x=y": (-1.0,), "TM": (0.5, 2.0)}
    write_lines(tmp_path / "weights", weights.weight_lines(written))
    assert weights.read_weights(str(tmp_path / "weights")) == written


def test_references_are_cut_at_the_spaces_that_hypotheses_are_cut_at(tmp_path):
    text = "a\u00a0b\tc  d\x0c"
    (tmp_path / "reference").write_text(f"{text}\n", encoding="utf-8")
    references = MosesFormat().references([str(tmp_path / "reference")])
    assert references == {"0": ["a b c d"]}
    assert parse(f"0 ||| {text} ||| x= 1 ||| 3").words == "a b c d"
