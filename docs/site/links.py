"""A hook of mkdocs: the pages above docs/, and files they link to, are part of the site.

In the files links are as GitHub needs them: from docs/ to ``../README.md``, from the README to
``docs/training.md``. The site has all of these pages in one folder, in lower case, and the README
as its front page.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ABOVE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff")
_NAMES = {name: name.lower() for name in ABOVE}
_NAMES["README.md"] = "index.md"
_TO_ABOVE = re.compile(rf"\]\((?:\.\./)?({'|'.join(map(re.escape, ABOVE))})(?=[#)])")
_TO_DOCS = re.compile(r"\]\(docs/")


def on_files(files: Any, config: Any) -> Any:
    """Those of these files that there are, with links that fit their new place."""
    root = Path(config.config_file_path).parent
    for name in ABOVE:
        if (root / name).is_file():
            text = (root / name).read_text(encoding="utf-8")
            files.append(File.generated(config, _NAMES[name], content=_TO_DOCS.sub("](", text)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to those files."""
    return _TO_ABOVE.sub(lambda link: f"]({_NAMES[link[1]]}", markdown)
