"""fairseq-bnce complete: questions in three forms, choices by score, accuracy and its interval."""

import csv
import json
import os
from functools import partial

import numpy as np
import pytest

from fairseq_bnce.data.completion import Question, accuracy, read_questions, right_letters
from fairseq_bnce.errors import InputError
from fairseq_bnce.text.tokens import novel_words

TABLE = '''id,question,a),b),c),d),e)
1,"""I _____, it's w3"" .",w1,w2,w3,w4,w5
12,w1 _____ w2,w3,w4,w5 w6,W7,zzz
'''
ANSWERS = "id,answer\n1,c\n12,d\n13,a\n"
# By names: sentences, and their choices from a to e.
QUESTIONS = {"1": ('"I {}, it\'s w3" .', ["w1", "w2", "w3", "w4", "w5"])}
QUESTIONS["12"] = ("w1 {} w2", ["w3", "w4", "w5 w6", "W7", "zzz"])
MACHINE = "".join(
    f"{name}{letter}) {form.format(f'[{choice}]')}\n"
    for name, (form, choices) in QUESTIONS.items()
    for letter, choice in zip("abcde", choices)
)
HUMAN = "\n".join(
    f"{name}) {form.format('_____')}\n"
    + "".join(f"\t{letter}) {choice}\n" for letter, choice in zip("abcde", choices))
    for name, (form, choices) in QUESTIONS.items()
)
HUMAN_ANSWERS = "1) [c] w3\n12) [d] W7\n"
MACHINE_ANSWERS = """1c) "I [w3], it's w3" .\n12d) w1 [W7] w2\n"""


@pytest.fixture
def put(tmp_path):
    def make(name, content):
        (tmp_path / name).write_text(content, encoding="utf-8")
        return str(tmp_path / name)

    return make


@pytest.fixture
def complete(command):
    return partial(command, "complete")


def rows(text):
    return list(csv.DictReader(text.splitlines()))


def cells(found, name):
    """The scores of all choices."""
    return [[float(row[f"{name}_{letter}"]) for letter in "abcde"] for row in found]


# ---------------------------------------------------------------- reading

WRONG_ANSWERS = ["1,f\n", "1,ab\n", "1,a\n1,b\n", "2,a\n"]


@pytest.mark.parametrize("text", [MACHINE, HUMAN])
def test_all_forms_give_the_same_questions(put, text):
    table = read_questions(put("q.csv", TABLE))
    assert table == read_questions(put("q.txt", text))
    assert [question.name for question in table] == ["1", "12"]
    assert table[1].sentences == ("w1 w3 w2", "w1 w4 w2", "w1 w5 w6 w2", "w1 W7 w2", "w1 zzz w2")
    assert novel_words(table[0].sentences[2]) == "`` i w3 , it 's w3 '' ."


OTHER_ANSWERS = "ans,id\n C) ,1\nd,12\n"


@pytest.mark.parametrize("answers", [ANSWERS, MACHINE_ANSWERS, HUMAN_ANSWERS, OTHER_ANSWERS])
def test_all_forms_give_the_same_answers(put, answers):
    assert right_letters(read_questions(put("q", TABLE)), put("a", answers)) == ["c", "d"]


GAPS = """id,question,a,b,c
1,I _____ it.,like,lost,
2,_____ _____ me.,He .. saw,She is at home and not with me.,
2b,"_____, not _____, is_____.",a b / c / d,e . . f... g,h…i…j
"""
GAPS_MACHINE = """1a) I [like] it.
1b) I [lost] it.
2a) [He] [saw] me.
2b) [She is at home] [and not with] me.
"""
GAPS_HUMAN = """1) I _____ it.
a) like
b) lost
2) _____ _____ me.
a) He ... saw
b) She is at home / and not with
"""


@pytest.mark.parametrize("text", [GAPS, GAPS_MACHINE, GAPS_HUMAN])
def test_other_numbers_of_choices_and_gaps(put, text):
    """A choice may also be the whole sentence."""
    one, two, *more = read_questions(put("q", text))
    assert one == Question("1", ("I like it.", "I lost it."))
    assert two.sentences == ("He saw me.", "She is at home and not with me.")
    for each in more:
        assert each.sentences == ("a b, not c, isd.", "e, not f, isg.", "h, not i, isj.")


def test_tables_as_spreadsheets_save_them(put):
    """Byte order mark, carriage returns, empty lines, other orders and titles, longer gaps."""
    table = "\ufeffA,B,c),D,e,Question,ID\r\n\r\n1,2,3,4,5,x _____,7\r\n1,2,3,4,5,________ x,8\r\n"
    one, two = read_questions(put("q.csv", table))
    assert one == ("7", ("x 1", "x 2", "x 3", "x 4", "x 5")) and two.sentences[1] == "2 x"


def read_answers(path):
    """Read the answers to a question of five choices."""
    return right_letters([Question("1", ("",) * 5)], path)


WRONG = [
    (read_questions, "", "q"),
    (read_questions, "a,b\n", "q, line 1"),
    (read_questions, TABLE + "3,x _____,1,2,3,4\n", "q, line 4"),
    (read_questions, TABLE + "3,_____ ______,1 .. 2,2,3,4,5\n", "q, line 4"),
    (read_questions, TABLE + "3,no gap,1,2,3,4,5\n", "q, line 4"),
    (read_questions, TABLE + "3,_____,1,2,,4,5\n", "q: .*'3'"),
    (read_questions, TABLE + "12,_____,1,2,3,4,5\n", "q: .*'12'"),
    (read_questions, MACHINE.replace("12d) w1 [W7]", "12d) w1 W7"), "q, line 9"),
    (read_questions, MACHINE.replace("12d)", "12e)"), "q: .*'12'"),
    (read_questions, MACHINE + "13a) w1 [w2]", "q: .*'13'"),
    (read_questions, HUMAN.replace("c) w5", "c w5"), "q, line 11"),
    *((read_answers, f"id,answer\n{rows}", "q: .*'1'") for rows in WRONG_ANSWERS),
]


@pytest.mark.parametrize(("read", "content", "named"), WRONG)
def test_what_is_no_question_or_answer(put, read, content, named):
    with pytest.raises(InputError, match=named):
        read(put("q", content))


# ---------------------------------------------------------------- accuracy


# The roots of (p - share)^2 = z^2 p (1 - p) / n, found by bisection.
ROOTS = [(10, 20, 0.299298, 0.700702), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0)]


@pytest.mark.parametrize(("right", "asked", "low", "high"), ROOTS)
def test_wilsons_interval(right, asked, low, high):
    found = accuracy(right, asked)
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=1e-6)


# ---------------------------------------------------------------- the command


def test_the_likeliest_sentence_is_chosen_both_ways(complete, put, made, tmp_path):
    out = tmp_path / "out.csv"
    questions, answers = put("q.csv", TABLE), put("a.csv", ANSWERS)
    status, output, errors = complete(questions, "--answers", answers, "--out", out)
    assert status == 0
    scorer = made("rnn_lm")
    sentences = [novel_words(s) for q in read_questions(questions) for s in q.sentences]
    found = rows(out.read_text())
    assert [(row["id"], row["answer"]) for row in found] == [("1", "c"), ("12", "d")]
    choices = {}
    for name, one in (("unnormalized", scorer), ("exact", scorer.with_exact(True))):
        want = one.score(sentences).reshape(2, 5)
        np.testing.assert_allclose(cells(found, name), want, atol=2e-6)
        choices[name] = ["abcde"[number] for number in want.argmax(1)]
        assert [row[name] for row in found] == choices[name]
        right = sum(a == b for a, b in zip(choices[name], "cd"))
        assert f"{name}: {right} of 2 right, {50 * right:.1f} % [" in output
    differ = sum(a != b for a, b in zip(*choices.values()))
    assert output.endswith(f"\nchoices that differ: {differ} of 2, {50 * differ:.1f} %\n")
    assert "out of the vocabulary" in errors


def test_words_may_be_cut_as_prepare_text_cuts_them(complete, put, made):
    """Which splits no negation as the challenge's novels do, and keeps letters as they are."""
    table = put("q.csv", "id,question,a,b,c,d,e\n1,I don't _____ it.,W1,w2,w3,w4,w5\n")
    expected = {
        ("--tokenize", "en"): "I don 't W1 it .",
        ("--tokenize", "en", "--lowercase"): "i don 't w1 it .",
        ("--tokenized", "--lowercase"): "i don't w1 it.",
        ("--tokenized",): "I don't W1 it.",
        (): "i do n't w1 it .",
    }
    for flags, words in expected.items():
        status, output, _ = complete(table, *flags)
        assert status == 0
        scorer = made("rnn_lm")
        want = scorer.score([words])[0]
        assert float(rows(output)[0]["unnormalized_a"]) == pytest.approx(want, abs=2e-6), flags


def test_several_models_add_their_scores(complete, put, language_model):
    """Later flags win over what the fixture gives."""
    questions = put("q", MACHINE)
    models = [str(language_model(name)) for name in ("rnn_lm", "transformer_lm", "lstm_lm")]
    paths = [*models, os.pathsep.join(models)]
    *single, together = (rows(complete(questions, "--path", path)[1]) for path in paths)
    for name in ("unnormalized", "exact"):
        *scores, total = (cells(found, name) for found in (*single, together))
        np.testing.assert_allclose(total, np.sum(scores, axis=0), atol=4e-6)
        assert [row[name] for row in together] == ["abcde"[n] for n in np.argmax(total, axis=1)]
    status, _, errors = complete(questions, "--path", os.pathsep.join([models[0], "no.pt"]))
    assert status == 2 and "no.pt: required" in errors


def test_a_question_of_fewer_choices(complete, put, made, tmp_path):
    """Its other cells in the table are empty."""
    questions = put("q", MACHINE + "13a) w1 [w2]\n13b) w2 [w1] [w3]\n")
    answers = put("a", "id,answer\n1,c\n12,d\n13,b\n")
    status, output, _ = complete(questions, "--answers", answers, "--out", tmp_path / "out")
    assert status == 0 and " of 3 right" in output
    scorer = made("rnn_lm")
    want = scorer.score(["w1 w2", "w2 w1 w3"])
    found = rows((tmp_path / "out").read_text())[2]
    values = [found[f"unnormalized_{letter}"] for letter in "abcde"]
    np.testing.assert_allclose([*map(float, values[:2])], want, atol=2e-6)
    assert values[2:] == ["", "", ""] and found["unnormalized"] == "ab"[want.argmax()]


def test_as_json(complete, put):
    flags = [put("q", MACHINE), "--answers", put("a", MACHINE_ANSWERS), "--exact"]
    text, found = complete(*flags)[1], json.loads(complete(*flags, "--json")[1])
    one = found["exact"]
    assert one == accuracy(one["right"], 2) and found["path"].endswith(".pt")
    share, low, high = (f"{100 * one[key]:.1f}" for key in ("share", "low", "high"))
    assert text == f"exact: {one['right']} of 2 right, {share} % [{low}, {high}]\n"


def test_without_answers_the_choices_are_printed(complete, put, tmp_path):
    status, output, _ = complete(put("q", MACHINE))
    assert status == 0
    found = rows(output)
    assert [row["id"] for row in found] == ["1", "12"]
    assert list(found[0])[:3] == ["id", "unnormalized", "exact"] and "answer" not in found[0]
    assert complete(put("q", MACHINE), "--out", tmp_path / "out")[:2] == (0, "")
    assert (tmp_path / "out").read_text() == output


def test_of_equals_the_first_is_chosen(complete, put):
    (row,) = rows(complete(put("q", "id,question,a,b,c,d,e\n1,_____,zx,zy,zx,zy,zx\n"))[1])
    assert row["exact"] == row["unnormalized"] == "a"
