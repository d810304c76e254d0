"""Proof that the strings which fairseq evaluates are literals.

fairseq keeps lists in strings, such as ``"[(512, 4)] * 2 + [(1024, 4)]"``, and calls ``eval()`` on
these strings while it builds a model. In a checkpoint from anywhere such a string may be a program.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import sys
import threading
from types import CodeType
from typing import Any, Iterator, Union

from fairseq_bnce.errors import CheckpointError, quoted

Source = Union[str, bytes, bytearray]  # eval() runs each of these types

_VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
_ARITHMETIC = (ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult)
_lock = threading.RLock()  # two threads must not replace eval() at the same time


@contextlib.contextmanager
def only_literals(path: str) -> Iterator[None]:
    """Let ``eval(text)`` accept only literals, for this thread, inside the ``with`` block.

    A literal consists of numbers, texts, True, False, None, lists, tuples and dictionaries, and of
    their sums, differences and products. Calls of ``eval`` with a namespace or with compiled code
    pass unchanged: they come from libraries (namedtuple, for example), not from a configuration.

    Args:
        path: the checkpoint, for the message.

    Raises:
        CheckpointError: for any other text; the text does not run.
    """
    with _lock:
        thread, original = threading.get_ident(), builtins.eval

        def evaluate(source: Any, *namespaces: Any, **kwargs: Any) -> Any:
            if namespaces or kwargs:
                return original(source, *namespaces, **kwargs)
            is_text = isinstance(source, (str, bytes, bytearray))
            if is_text and threading.get_ident() == thread:
                return original(_compile_literal(source, path), {"__builtins__": {}})
            caller = sys._getframe(1)
            return original(source, caller.f_globals, caller.f_locals)

        builtins.eval = evaluate
        try:
            yield
        finally:
            builtins.eval = original


def _compile_literal(source: Source, path: str) -> CodeType:
    try:
        tree = ast.parse(source.strip(), mode="eval")
        if all(isinstance(node, _VALUES + _ARITHMETIC) for node in ast.walk(tree)):
            return compile(tree, path, "eval")
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        pass
    raise CheckpointError(
        f"path {path}: required a literal (numbers, texts and lists) where fairseq evaluates a "
        f"text, got {quoted(source)}; nothing in it was run"
    )
