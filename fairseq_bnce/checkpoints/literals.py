"""Let fairseq evaluate nothing but literals while it builds the model of a checkpoint.

fairseq keeps lists in strings, such as ``"[(512, 4)] * 2 + [(1024, 4)]"``, and calls ``eval()`` on
these strings while it builds a model. In a checkpoint from anywhere such a string may be a program.
"""

import ast
import builtins
import contextlib
import sys
import threading
import types
from typing import Any, Dict, Iterator, List

from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from fairseq_bnce.errors import CheckpointError, quoted

_VALUES = (ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load)
_ARITHMETIC = (ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult)
_OF_FAIRSEQ = ("fairseq", "examples")  # fairseq's examples in a checkout
_lock = threading.RLock()  # two threads must not give the same modules another eval()


@contextlib.contextmanager
def only_literals(path: str) -> Iterator[None]:
    """Let ``eval(text)`` accept only literals, for this thread, inside the ``with`` block.

    A literal consists of numbers, texts, True, False, None, lists, tuples and dictionaries, and of
    their sums, differences and products.

    The modules of fairseq have this other ``eval`` among their names during the block, and so have
    all packages that registered something with fairseq, such as a --user-dir. Modules of these
    packages that are imported during the block have it, too. ``builtins`` and other libraries keep
    theirs. So a user's own code is not covered where it evaluates a text in another way: by
    ``exec`` or ``builtins.eval``, or by a library that it hands the text to.

    Args:
        path: the checkpoint, for the message.

    Raises:
        CheckpointError: for any other text; the text does not run.
    """
    with _lock:
        guard = _Guard(path)
        for name, module in list(sys.modules.items()):
            if guard.covers(name):
                guard.enter(module)
        sys.meta_path.insert(0, guard)
        try:
            yield
        finally:
            sys.meta_path.remove(guard)
            guard.leave()


class _Guard:
    """The other ``eval``, and a finder that gives it to modules before they are imported."""

    def __init__(self, path: str):
        self._path, self._thread = path, threading.get_ident()
        self._entered: List[Dict[str, object]] = []
        tables = [entry["registry"] for entry in REGISTRIES.values()]
        tables += [MODEL_REGISTRY, ARCH_CONFIG_REGISTRY, TASK_REGISTRY]
        names = {kind.__module__ for table in tables for kind in table.values()}
        self._packages = {*_OF_FAIRSEQ, *(name.partition(".")[0] for name in names)}

    def covers(self, name: str) -> bool:
        """Return whether a module has the other ``eval`` during the block."""
        return name.partition(".")[0] in self._packages

    def enter(self, module: object) -> None:
        """Give a module the other ``eval``, unless it has a function of this name."""
        names = getattr(module, "__dict__", {})
        if "eval" not in names:
            names["eval"] = self._evaluate
            self._entered.append(names)

    def leave(self) -> None:
        """Take it from all modules again; what was kept of it evaluates as Python does."""
        self._thread = -1
        for names in self._entered:
            names.pop("eval", None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Find a module by the other finders."""
        if not self.covers(name):
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        find = (getattr(finder, "find_spec", None) for finder in others)
        spec: Any = next(filter(None, (one(name, path, target) for one in find if one)), None)
        loader = getattr(spec, "loader", None)
        if loader is not None:

            def exec_module(module: types.ModuleType) -> None:
                del loader.exec_module  # uncovers the class's own
                self.enter(module)
                loader.exec_module(module)

            loader.exec_module = exec_module
        return spec

    def _evaluate(self, source: Any, *namespaces: Any, **named: Any) -> object:
        is_text = not isinstance(source, types.CodeType)  # the bytes of an array are text, too
        if is_text and threading.get_ident() == self._thread:
            return builtins.eval(_compile_literal(source, self._path), {"__builtins__": {}})
        if not namespaces and not named:
            caller = sys._getframe(1)
            namespaces = caller.f_globals, caller.f_locals
        return builtins.eval(source, *namespaces, **named)


def _compile_literal(source: Any, path: str) -> types.CodeType:
    try:
        tree = ast.parse(source.strip(), mode="eval")
        if all(isinstance(node, _VALUES + _ARITHMETIC) for node in ast.walk(tree)):
            return compile(tree, path, "eval")
    except (AttributeError, MemoryError, RecursionError, SyntaxError, ValueError):
        pass
    required = "a literal (numbers, texts and lists) where fairseq evaluates a text"
    raise CheckpointError("path", required, f"{quoted(source)}; nothing in it was run", path)
