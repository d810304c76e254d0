"""KenLM on a text, and networks of compare.py mixed with KenLM."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List

from .. import command, processes, report
from ..workshop import Workshop, lines_of, write

SPLITS = ("train", "valid", "test")
_COMMANDS = report.load("recipes")["peers"]


def measure(options: Any) -> Dict[str, Any]:
    shop = Workshop(options)
    texts = {split: shop.at("text", f"{split}.txt") for split in SPLITS}
    for split, path in texts.items():
        lines = lines_of(options.text / f"{split}.txt")
        write(path, (line.replace("<unk>", "UNK") for line in lines))
    folders = {"words": options.text, **{path.name: path for path in options.pieces}}
    tokens = {name: _count(path / "valid.txt") for name, path in folders.items()}
    systems = {"KenLM": _kenlm(shop, texts)}
    about = {"text": options.text.name, "tokens": tokens, "systems": systems}
    return {**about, "mixtures": _mixtures(shop, texts)}


def _kenlm(shop: Workshop, texts: Dict[str, Path]) -> Dict[str, Any]:
    """Estimate an n-gram model with modified Kneser-Ney smoothing, and score with it."""

    def estimate() -> Dict[str, float]:
        ended = [shop.run(line, text=texts["train"]) for line in _COMMANDS["KenLM"]]
        (shop.out / "kenlm.arpa").unlink()
        return {
            "seconds": sum(one.cpu_seconds for one in ended),
            "peak_bytes": max(one.peak_bytes for one in ended),
            "disk_bytes": (shop.out / "kenlm.bin").stat().st_size,
        }

    found = shop.once("kenlm", estimate)
    for split in SPLITS[1:]:
        printed = shop.out / f"kenlm.{split}"
        query = shop.run(_COMMANDS["query"], way="summary", text=texts[split], printed=printed)
        text = printed.read_text(encoding="utf-8")
        found[f"{split}_ppl"] = float(re.search(r"including OOVs:\s+(\S+)", text)[1])  # type: ignore
        words = int(re.search(r"Tokens:\s+(\d+)", text)[1])  # type: ignore
        found["words_per_processor_second"] = words / query.cpu_seconds
    return found


def _mixtures(shop: Workshop, texts: Dict[str, Path]) -> List[Dict[str, Any]]:
    """Mix the networks of compare.py with KenLM."""
    options = shop.options
    own = {split: options.text / f"{split}.txt" for split in SPLITS[1:]}
    ngrams = {split: options.out / f"kenlm.{split}.words" for split in own}
    for split, printed in ngrams.items():
        shop.run(_COMMANDS["query"], way="word", text=texts[split], printed=printed)
    ways = ["lines", "running"][: 1 + options.running]
    task: Dict[str, Any] = {"texts": own, "ngrams": ngrams, "ways": ways}
    found = []
    for path in options.mix:
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"]:
            folder = path.parent / run["folder"]
            stored, checkpoint = folder / "mixed.json", folder / "checkpoints/checkpoint_last.pt"
            if not stored.exists():
                command.say(f"{path.parent.name}: {run['label']}, seed {run['seed']}")
                task.update(checkpoint=checkpoint)
                processes.call("experiments.mixtures.measure", stored, options.threads, **task)
            about = {key: run[key] for key in ("label", "seed", "updates", "processor_seconds")}
            found.append({**about, **json.loads(stored.read_text(encoding="utf-8"))})
    return found


def _count(path: Path) -> int:
    """Return the number of words of a text, with </s>."""
    return sum(len(line.split()) + 1 for line in lines_of(path))
