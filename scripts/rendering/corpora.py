"""Tables of the report.json that fairseq-bnce get-data and prepare-text write."""

from __future__ import annotations

from typing import Any, Dict, List

from .cells import number, table


def splits(*reports: Dict[str, Any]) -> List[str]:
    """Sentences, tokens and <unk> of every split of corpora."""
    lines = []
    for report in reports:
        for name, split in report["splits"].items():
            counts = [number(split[count], ",d") for count in ("lines", "types", "tokens")]
            share = number(100 * split["unk"] / split["tokens"], ".2f")
            lines.append([f"`{report['corpus']['name']}` {name}", *counts, f"{share} %"])
    return table(["", "sentences", "types", "tokens", "`<unk>`"], lines)
