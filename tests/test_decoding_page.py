"""docs/decoding.md: every example, as it stands there, in a folder that has what it reads.

test_docs.py runs the rest of the page.
"""

import importlib.util
import re
import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from test_decoders import WORDS, best, emissions
from tools import write_lines

from fairseq_bnce import Scorer

PAGE = (Path(__file__).parents[1] / "docs" / "decoding.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
EXAMPLES = {
    section.splitlines()[0]: code
    for section in SECTIONS
    for code in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
}


@pytest.fixture
def folder(tmp_path, monkeypatch, language_model, corpus):
    shutil.copy(language_model("lstm_lm"), tmp_path / "checkpoint_best.pt")
    shutil.copy(corpus / "dict.txt", tmp_path)
    write_lines(tmp_path / "lexicon.txt", [f"{w} {' '.join(w)} |" for w in WORDS[1:]])
    np.save(tmp_path / "emissions.npy", emissions())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scorer(folder):
    return Scorer.from_checkpoint("checkpoint_best.pt")


def printed(name, capsys):
    exec(compile(EXAMPLES[name], name, "exec"), {})
    return capsys.readouterr().out.splitlines()


def test_every_example_is_run_here():
    names = "ESPnet, KenLM's interface, SpeechBrain, flashlight, pyctcdecode, torchaudio"
    assert ", ".join(sorted(EXAMPLES)) == names


@pytest.mark.parametrize("name", ["flashlight", "pyctcdecode"])
def test_beam_searches(name, scorer, capsys):
    assert printed(name, capsys) == best(scorer)


def test_torchaudio(scorer, capsys, monkeypatch):
    """Its Python, without its compiled parts, which need a torch of torchaudio's version."""
    package = Path(importlib.util.find_spec("torchaudio").origin).parent
    stand_ins = ["torchaudio", "torchaudio.utils", "torchaudio.models"]
    for module in stand_ins:
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    sys.modules["torchaudio.utils"]._download_asset = None
    path = package / "models" / "decoder" / "_ctc_decoder.py"
    spec = importlib.util.spec_from_file_location("torchaudio.models.decoder", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torchaudio.models.decoder", module)
    spec.loader.exec_module(module)
    assert printed("torchaudio", capsys) == best(scorer)


def test_kenlm(scorer, capsys):
    first, second = printed("KenLM's interface", capsys)
    score, perplexity, is_known = first.split()
    want = scorer.score(["w1 w2 w3"])[0]
    assert float(score) == pytest.approx(want / np.log(10), abs=1e-4) == float(second)
    assert float(perplexity) == pytest.approx(np.exp(-want / 4), abs=0.01) and is_known == "True"


@pytest.mark.decoders
def test_espnet(scorer, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "fairseq_bnce.decoding.espnet", raising=False)
    (text,) = printed("ESPnet", capsys)
    assert scorer.score([text])[0] >= scorer.score(["w10", "w11 w12"]).max()


def test_speechbrain(scorer, capsys):
    (index,) = printed("SpeechBrain", capsys)
    assert int(index) == scorer.score(["w1 w2", "w1 w3"]).argmax()
