"""scripts/embedded_corpus.py: on topics made for the purpose, and on the interpreter's own."""

import embedded_corpus as ec

TOPIC = """The "pass" statement
********************

   pass_stmt ::= "pass"

"pass" is a *null operation* — when it is executed, nothing
happens.  It is useful as a **placeholder**, e.g. here:

   def f(arg): pass    # a function that does nothing (yet)

* The first item of a list is a sentence.
"""
LINES = [
    "pass is a null operation — when it is executed, nothing happens.",
    "It is useful as a placeholder, e.g. here:",
    "",
    "The first item of a list is a sentence.",
    "",
]


def test_prose_is_kept_once_and_without_markup() -> None:
    assert list(ec.corpus_lines({"b": TOPIC, "a": TOPIC})) == LINES


def test_this_pythons_own_reference(tmp_path) -> None:
    ec.main([str(tmp_path / "new" / "a")])
    text = (tmp_path / "new" / "a").read_text(encoding="utf-8")
    assert len(text.split()) > 30_000
    assert ">>>" not in text and "::=" not in text and '"' not in text
