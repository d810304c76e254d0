"""The commands of the README and of docs/ run as they stand, in a folder like a reader's.

A block that can't be run here says on the line before it what it needs, as in
``<!-- needs: a GPU, WikiText-103 -->``; its flags are parsed. So are those of a block with ``...``.
"""

from __future__ import annotations

import ast
import random
import re
import shutil
from pathlib import Path

import pytest
import torch
from conftest import zipf_lines
from pages import BLOCKS, DATA, PAGES, ROOT, SHELL, Block
from shell import MODULES, SCRIPTS, Parsing, Shell
from tools import PLUGIN, write_lines

pytestmark = pytest.mark.modern

ALL = [block for blocks in BLOCKS.values() for block in blocks]
RUN = [block for block in ALL if block.language in SHELL and block.is_run]
NAMED = {page.relative_to(ROOT).as_posix(): blocks for page, blocks in BLOCKS.items()}
PARSED = {
    page: [block for block in blocks if block.language in SHELL and not block.is_run]
    for page, blocks in NAMED.items()
}
PYTHON = {
    page: [block for block in blocks if block.language == "python" and block.is_run]
    for page, blocks in NAMED.items()
    if page != "CONTRIBUTING.md"  # which quotes the package
}
EXPERIMENTS = sorted((ROOT / "docs/results").glob("*.sh"))
COMMAND = rf"(?:{'|'.join(['fairseq-bnce', *MODULES])}|scripts/(?:{'|'.join(SCRIPTS)}))"
# For time; for machines without a GPU, as the pages say; and, since hydra changes the folder, for
# environments into which another checkout is installed.
HYDRA = ["common.cpu=true", "optimization.max_epoch=1", f"common.user_dir={PLUGIN}"]
FURTHER = {"fairseq-train": ["--max-epoch", "1"], "fairseq-hydra-train": HYDRA}
QUESTIONS = ["id,question,a),b),c),d),e)", "1,w1 _____ w3 .,w2,w4,w5,w6,w7"]
# Names that pages take for granted, as the prose beside them says.
NAMES = {
    "counts": torch.arange(1, 13),
    "h": torch.zeros(4, 3),
    "target": torch.tensor([0, 5, 5, 11]),
    "weight": torch.zeros(12, 3),
    "bias": torch.zeros(12),
}


def moses(lists: int, seed: int) -> tuple:
    """(lists of three hypotheses, references) on the fixture corpus' words."""
    references = zipf_lines(lists, seed)
    rng = random.Random(seed)
    lines = []
    for place, reference in enumerate(references):
        for _ in range(3):
            words = [word if rng.random() < 0.8 else "w1" for word in reference.split()]
            lines.append(f"{place} ||| {' '.join(words)} ||| TM0= {-rng.random():.3f} ||| -1.5")
    return lines, references


def write_lists(folder: Path) -> None:
    """N-best lists with references: of Moses, dev and test, and of Kaldi."""
    for split, seed in (("dev", 1), ("test", 2)):
        lines, references = moses(6, seed)
        write_lines(folder / f"{split}.nbest", lines)
        write_lines(folder / f"{split}.ref", references)
    write_lines(folder / "nbest", lines)
    keys = [f"{line.split()[0]}-{place % 3 + 1}" for place, line in enumerate(lines)]
    hypotheses = [line.split(" ||| ")[1] for line in lines]
    write_lines(folder / "words", [" ".join(pair) for pair in zip(keys, hypotheses)])
    for name in ("ac", "lm"):
        write_lines(folder / name, [f"{key} {len(name) + 0.5}" for key in keys])
    (folder / "dev").mkdir()
    write_lines(folder / "dev" / "text", [f"{i} {line}" for i, line in enumerate(references)])


@pytest.fixture(scope="module")
def presupposed(corpus, language_model, tmp_path_factory):
    """A folder with the files that the pages name."""
    folder = tmp_path_factory.mktemp("presupposed")
    quickstart = folder / "quickstart-run"  # as scripts/quickstart.sh leaves it
    shutil.copytree(corpus, quickstart / "data" / "bin")
    (quickstart / "data" / "text").mkdir()
    write_lines(quickstart / "data" / "text" / "test.txt", zipf_lines(40, 41))
    write_lines(quickstart / "nbest.txt", moses(3, 3)[0])
    write_lines(quickstart / "questions.csv", QUESTIONS)
    checkpoint = language_model("rnn_lm")
    for place in (folder, folder / "checkpoints"):
        place.mkdir(exist_ok=True)
        for name in ("checkpoint_best.pt", "lm.pt"):
            shutil.copy(checkpoint, place / name)
        shutil.copy(checkpoint.parent / "dict.txt", place)
    texts = "a.txt b.txt c.txt d.txt corpus.txt text.txt lines.txt ptb.train.txt ptb.valid.txt"
    for seed, name in enumerate([*texts.split(), "ptb.test.txt"]):
        write_lines(folder / name, zipf_lines(120, seed))
    write_lines(folder / "new.txt", ["w1 new w2", "w3 new w1"])
    write_lists(folder)
    write_lines(folder / "beams.tsv", [f"{line}\t-3.5" for line in zipf_lines(5, 4)])
    write_lines(folder / "questions.csv", QUESTIONS)
    write_lines(folder / "answers.csv", ["id,answer", "1,c"])
    return folder


@pytest.fixture
def folder(presupposed, tmp_path):
    return shutil.copytree(presupposed, tmp_path / "reader")


def test_there_are_blocks_of_every_kind() -> None:
    assert len(RUN) >= 8 and sum(map(len, PARSED.values())) >= 8
    assert sum(map(len, PYTHON.values())) >= 3


@pytest.mark.parametrize("block", ALL, ids=lambda block: block.place)
def test_a_block_is_commands_or_python_or_text(block: Block) -> None:
    assert block.language in (*SHELL, "python", "diff", DATA)
    if block.language == DATA:
        assert not re.findall(r"^(?:fairseq-[\w-]+|scripts/\S+|pip) .*", block.text, re.MULTILINE)


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
def test_commands_run(block: Block, folder: Path) -> None:
    status, output = Shell(folder, FURTHER).run(block.text)
    assert status == 0, output


@pytest.mark.parametrize("page", [page for page, blocks in PARSED.items() if blocks])
def test_flags_of_commands_that_are_not_run(page: str, tmp_path: Path) -> None:
    parse("\n".join(block.text for block in PARSED[page]), tmp_path)  # variables are the page's


@pytest.mark.parametrize("script", EXPERIMENTS, ids=lambda script: script.name)
def test_flags_of_the_results_commands(script: Path, tmp_path: Path) -> None:
    parse(script.read_text(encoding="utf-8").replace("set -eu\n", ""), tmp_path)


def parse(text: str, folder: Path) -> None:
    shell = Parsing(folder)
    output = shell.run(text).output
    assert not shell.refused, "\n".join(shell.refused)
    # Or bash stopped, at a quote that has no end or a file that is not there.
    assert shell.parsed >= len(re.findall(rf"^ *{COMMAND} ", text, re.MULTILINE)), output


@pytest.mark.parametrize("page", [page for page, blocks in PYTHON.items() if blocks])
def test_python_runs(page: str, folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "fairseq_bnce").symlink_to(PLUGIN)  # the environment may have another checkout
    names = dict(NAMES)
    for block in PYTHON[page]:
        exec(compile(block.text, block.place, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_the_site_has_too(page: Path) -> None:
    hook = (ROOT / "docs/site/links.py").read_text(encoding="utf-8")
    above = ast.literal_eval(re.search(r"^ABOVE = (\(.*\))$", hook, re.MULTILINE)[1])
    for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        assert target.is_file(), link
        is_in_docs = (ROOT / "docs") in target.parents
        assert is_in_docs or target.relative_to(ROOT).as_posix() in above, link


WRONG_FLAGS = [
    ("fairseq-train DATA --arch lstm_lm --criterion bnce --noise zipf", "--noise"),
    ("for i in 1; do fairseq-eval-lm DATA --path x --unnormalised; done", "--unnormalised"),
    ("fairseq-bnce score --path x --exactly text.txt", "--exactly"),
    ("scripts/compare.py bin --out x -- --max-updates 500x", "--max-update"),
    ("scripts/compare.py bin --out x --flags-for bnce '--row-sparce'", "--row-sparce"),
]


@pytest.mark.parametrize("command, error", WRONG_FLAGS)
def test_wrong_flags_are_refused(command: str, error: str, tmp_path: Path) -> None:
    """Else the test of flags would find nothing."""
    shell = Parsing(tmp_path)
    shell.run(f"touch made; {command}")
    assert len(shell.refused) == 1 and error in shell.refused[0]
    assert not (tmp_path / "made").exists()
