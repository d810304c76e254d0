"""Strings of a configuration that fairseq would hand to ``eval()``, proved to be literals.

fairseq keeps lists in strings, such as ``"[(512, 4)] * 2 + [(1024, 4)]"``, and evaluates them when
it builds a model. A checkpoint comes from anywhere, so that its strings are no program to run:
:func:`literal` takes numbers, words, lists and what sums and products make of them, of a bounded
size, and :func:`evaluating_literals` puts it in the place of ``eval()`` while a model is built,
whichever architecture asks, in fairseq, here or in a user's own directory.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import math
import operator
import sys
import threading
from typing import Any, Callable, Dict, Iterator, NamedTuple, Union

Text = Union[str, bytes, bytearray]  # all of which eval() runs

_MOST_CHARACTERS = 4096  # fairseq's longest default has some 500
_MOST_ITEMS = 10_000
_LARGEST = 2**63
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_SIGNS: Dict[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_SEQUENCES = (str, list, tuple)
_only_one = threading.RLock()


class NotALiteral(ValueError):
    """A string that is more than a literal, or of one that is too large.

    Attributes:
        text: the string.
    """

    def __init__(self, text: Text, reason: str):
        super().__init__(reason)
        self.text = text


class _Value(NamedTuple):
    value: Any
    items: int  # that it is made of, at all depths


def literal(text: Text) -> Any:
    """The value of a literal; nothing is run.

    Args:
        text: numbers, strings, True, False and None, lists, tuples and dictionaries of them, and
            their sums, differences and products.

    Raises:
        NotALiteral: for anything else, and for what is too large: over 4,096 characters, 10,000
            items, or numbers beyond 2**63.
    """
    if len(text) > _MOST_CHARACTERS:
        raise NotALiteral(text, f"{len(text):,} characters, over {_MOST_CHARACTERS:,}")
    try:
        words = text if isinstance(text, str) else bytes(text).decode("utf-8")
        return _value(ast.parse(words.strip(), mode="eval").body).value
    except NotALiteral as error:
        raise NotALiteral(text, str(error)) from None
    except (MemoryError, RecursionError):
        raise NotALiteral(text, "too deep") from None
    except SyntaxError as error:
        raise NotALiteral(text, f"no expression: {error.msg}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotALiteral(text, str(error)) from None


@contextlib.contextmanager
def evaluating_literals() -> Iterator[None]:
    """In here, in this thread, ``eval(text)`` takes literals alone; see :func:`literal`.

    What brings namespaces of its own, or compiled code, is a library at its work (namedtuple,
    say) and no string of a configuration. Other threads' calls are what they were.
    """
    with _only_one:
        thread, whole = threading.get_ident(), builtins.eval

        def evaluate(source: Any, *namespaces: Any, **kwargs: Any) -> Any:
            is_text = isinstance(source, (str, bytes, bytearray))
            if is_text and not namespaces and not kwargs and threading.get_ident() == thread:
                return literal(source)
            if not namespaces and not kwargs:
                caller = sys._getframe(1)
                namespaces = (caller.f_globals, caller.f_locals)
            return whole(source, *namespaces, **kwargs)

        builtins.eval = evaluate
        try:
            yield
        finally:
            builtins.eval = whole


def _value(node: ast.AST) -> _Value:
    if isinstance(node, ast.Constant):
        return _bounded(node.value)
    if isinstance(node, (ast.List, ast.Tuple)):
        parts = [_value(part) for part in node.elts]
        values = [part.value for part in parts]
        return _counted(values if isinstance(node, ast.List) else tuple(values), parts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_value(key) for key in node.keys if key is not None]
        parts = [_value(part) for part in node.values]
        pairs = zip((key.value for key in keys), (part.value for part in parts))
        return _counted(dict(pairs), [*keys, *parts])
    if isinstance(node, ast.UnaryOp) and type(node.op) in _SIGNS:
        return _bounded(_SIGNS[type(node.op)](_value(node.operand).value))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _combined(_ARITHMETIC[type(node.op)], _value(node.left), _value(node.right))
    raise NotALiteral("", f"{type(node).__name__} is no part of a literal")


def _combined(operation: Any, left: _Value, right: _Value) -> _Value:
    """Its size is known before it is made."""
    if not {type(left.value), type(right.value)} & set(_SEQUENCES):
        return _bounded(operation(left.value, right.value))
    items = left.items + right.items
    if operation is operator.mul:
        times = [side.value for side in (left, right) if isinstance(side.value, int)]
        items *= max([1, *times])
    _check_items(items)
    return _Value(operation(left.value, right.value), items)


def _counted(value: Any, parts: Any) -> _Value:
    items = 1 + sum(part.items for part in parts)
    _check_items(items)
    return _Value(value, items)


def _check_items(items: int) -> None:
    if items > _MOST_ITEMS:
        raise NotALiteral("", f"over {_MOST_ITEMS:,} items")


def _bounded(value: Any) -> _Value:
    if isinstance(value, str) or value is None:
        return _Value(value, 1 + len(value or ""))
    if not isinstance(value, (int, float)):
        raise NotALiteral("", f"a {type(value).__name__} is no part of a literal")
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise NotALiteral("", f"a number beyond {_LARGEST:,}")
    return _Value(value, 1)
