"""The fenced blocks of the documentation."""

import re
from pathlib import Path
from typing import List, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("", "sh")
DATA = "text"

_RENDERED = re.compile(r"^<!-- table: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(
    r"^(?:<!-- needs: (?P<needs>[^\n]+) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One of a page.

    Attributes:
        place: the page and the line, as in ``docs/training.md:5``.
        language: what the fence says; nothing is the shell's.
        text: what is in it.
        needs: what it can't be run without, as ``<!-- needs: a GPU -->`` before it says; or "".
    """

    place: str
    language: str
    text: str
    needs: str

    @property
    def is_run(self) -> bool:
        """Or else its flags are parsed: where something is missing, or left out (``...``)."""
        return not self.needs and "..." not in self.text


def blocks_of(page: Path) -> List[Block]:
    """In their order, but for tables that are written from files."""
    text = _RENDERED.sub(lambda table: "\n" * table[0].count("\n"), page.read_text("utf-8"))
    name = page.relative_to(ROOT).as_posix() if ROOT in page.parents else page.name
    blocks = []
    for match in _BLOCK.finditer(text):
        place = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        language, needs = match["language"].strip(), match["needs"] or ""
        blocks.append(Block(place, language, match["text"], needs))
    return blocks


BLOCKS = {page: blocks_of(page) for page in PAGES if page.is_file()}
