"""An extension of griffe, which reads docstrings for mkdocstrings: Sphinx's roles become code."""

import re
from typing import Any

from griffe import Extension, Object

_ROLE = re.compile(r":(?:class|func|meth|mod|data):`~?([^`]+)`")


class Roles(Extension):
    """``:func:`log_partition``` is ```log_partition```."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Of whatever kind the object is."""
        if obj.docstring:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)
