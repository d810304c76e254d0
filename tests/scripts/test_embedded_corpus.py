"""scripts/embedded_corpus.py: on topics made for the purpose, and on the interpreter's own."""

from __future__ import annotations

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


def test_prose_is_kept_without_markup() -> None:
    """Repeated paragraphs are left out."""
    for topics in ({"pass": TOPIC}, {"b": TOPIC, "a": TOPIC}):
        assert list(ec.corpus_lines(topics)) == LINES


def test_this_pythons_own_reference(tmp_path, capsys) -> None:
    for name in ("a", "b"):
        assert ec.main([str(tmp_path / "new" / name)]) == 0
    text = (tmp_path / "new" / "a").read_text(encoding="utf-8")
    assert text == (tmp_path / "new" / "b").read_text(encoding="utf-8")
    assert len(text.split()) > 30_000
    assert f"{len(text.split()):,} words" in capsys.readouterr().out
    paragraphs = text.split("\n\n")
    assert len(set(paragraphs)) > 0.97 * len(paragraphs)
    assert ">>>" not in text and "::=" not in text and '"' not in text
