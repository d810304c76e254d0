"""fairseq-bnce extend-vocabulary: words held out of a training, and added afterwards."""

import collections
import json
import math
import random
from pathlib import Path
from typing import Any, Dict, List, Set

from .. import command, report
from ..workshop import Workshop, write

_SPLITS = ("train", "valid", "test")
_RANGE = (20, 30)  # occurrences of a word that is held out
_COMMANDS = report.load("recipes")["extension"]


def measure(options: Any) -> Dict[str, Any]:
    paths = {split: options.text / f"{split}.txt" for split in _SPLITS}
    lines = {split: path.read_text("utf-8").splitlines() for split, path in paths.items()}
    counts = collections.Counter(word for line in lines["train"] for word in line.split())
    few = sorted(word for word, count in counts.items() if _RANGE[0] <= count <= _RANGE[1])
    new = set(random.Random(1).sample(few, options.words))
    _write_texts(options, lines, new)
    models, unseen = _models(Workshop(options)), lines["valid"] + lines["test"]
    return {
        "report": json.loads((options.out / "added.json").read_text("utf-8")),
        "perplexity": {name: _perplexities(path, unseen, new) for name, path in models.items()},
    }


def _write_texts(options: Any, lines: Dict[str, List[str]], new: Set[str]) -> None:
    """Write the text without new words, the text to add them with, and the text to go on with."""
    seen: Any = collections.Counter()
    shown, others = [], []
    for line in lines["train"]:
        own = new & set(line.split())
        if any(seen[word] < options.sentences for word in own):
            shown.append(line)
        elif not own:
            others.append(line)
        seen.update(own)
    further = [*shown, *random.Random(2).sample(others, min(len(others), 2 * len(shown)))]
    random.Random(3).shuffle(further)

    def hidden(name: str) -> List[str]:
        return [" ".join("<unk>" if w in new else w for w in line.split()) for line in lines[name]]

    texts = {"old.train": hidden("train"), "old.valid": hidden("valid"), "new": sorted(new)}
    texts.update({"added": shown + others, "further.train": further})
    texts.update({"whole.train": lines["train"], "whole.valid": lines["valid"]})
    texts.update({"further.valid": lines["valid"]})
    for name, content in texts.items():
        write(options.out / f"{name}.txt", content)


def _models(shop: Workshop) -> Dict[str, Path]:
    """Return the models before words were added, afterwards, and of a training with the words."""
    out, names = shop.out, ("old", "whole") if shop.options.whole else ("old",)
    trained = {name: out / name / "checkpoint_last.pt" for name in names}
    for name, path in trained.items():
        if not path.is_file():
            shop.run(_COMMANDS["prepare"], name=name)
            command.say(f"training {name}")
            shop.run(_COMMANDS["train"], "--lr 0.008 --max-epoch 1", name=name)
    texts = {"listed": "", "added": "--text {out}/added.txt"}
    for name, flags in texts.items():
        if not (out / name).exists():
            shop.run(_COMMANDS["extend"], flags, printed=out / f"{name}.json", name=name)
    shop.run(_COMMANDS["prepare"], "--dict {out}/added/dict.txt", name="further")
    last = out / "further" / "checkpoint_last.pt"
    last.unlink(missing_ok=True)
    shop.run(_COMMANDS["train"], _COMMANDS["further"], name="further")
    found = {name: out / name / "checkpoint.pt" for name in texts}
    return {"before": trained.pop("old"), **found, "further": last, **trained}


def _perplexities(path: Path, lines: List[str], new: Set[str]) -> Dict[str, float]:
    """Return exact perplexities of new words, <unk>, other words, and lines without new words."""
    from fairseq_bnce import Scorer

    nats: Dict[str, List[float]] = collections.defaultdict(list)
    scorer = Scorer.from_checkpoint(str(path), exact=True)
    for score in scorer.score_stream(lines, tokenized=True):
        for word, log_prob in zip(score.words, score.log_probs.tolist()):
            kind = "new_words" if word in new else "unk" if word == "<unk>" else "other_words"
            nats[kind].append(log_prob)
        nats["old_lines"] += [] if new & set(score.words) else score.log_probs.tolist()
    return {name: math.exp(-sum(some) / len(some)) for name, some in nats.items()}
