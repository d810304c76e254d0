"""Scripts find the checkout's environment by themselves, whatever Python they are started with."""

import importlib
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A folder with these scripts, and a Python that has neither torch nor fairseq."""
    copies = tmp_path_factory.mktemp("checkout")
    subprocess.run(["cp", "-r", ROOT / "scripts", ROOT / "fairseq_bnce", copies], check=True)
    return copies


@pytest.fixture
def checkout(scripts):
    """The same, without an environment."""
    yield scripts
    (scripts / "tqdm").unlink(missing_ok=True)
    for name in (".venv", ".venv-stock"):
        shutil.rmtree(scripts / name, ignore_errors=True)


def run_bare(script: Path, *arguments: str) -> subprocess.CompletedProcess:
    """As an interpreter without any package runs it: ``-S`` leaves out site-packages."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-S", script, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, env=environment, text=True, **pipes)


@pytest.mark.parametrize("folder", [".venv", ".venv-stock"])
def test_the_checkouts_environment_is_entered(checkout, folder: str) -> None:
    python = checkout / folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho entered "$@"\n')  # how it was called
    python.chmod(0o755)
    for name in ("recipe.py", "fairseq-bnce"):
        script = checkout / "scripts" / name
        assert run_bare(script, "--some", "flag").stdout == f"entered {script} --some flag\n"


NEEDED = [
    (["recipe.py", "--list"], "scripts/setup_env.sh"),
    (["fairseq-bnce", "score", "--path", "x"], "numpy"),
    (["fairseq-bnce", "prepare-text", "--train", "x", "--out", "y", "--tokenized"], "tqdm"),
]


@pytest.mark.parametrize(("command", "needed"), NEEDED)
def test_what_a_command_lacks_is_named_in_a_line(checkout, command, needed) -> None:
    name, *arguments = command
    done = run_bare(checkout / "scripts" / name, *arguments)
    assert done.returncode and done.stdout.startswith(f"{name}: error: required ")
    assert needed in done.stdout and sys.executable in done.stdout
    assert done.stdout.count("\n") == 1


def test_preparing_text_needs_no_fairseq(checkout, tmp_path) -> None:
    """Nor torch: tqdm is enough for words that are separated already."""
    import tqdm

    (checkout / "tqdm").symlink_to(Path(tqdm.__file__).parent)
    (tmp_path / "text").write_text("a b\n" * 30)
    command = ["prepare-text", "--input", str(tmp_path / "text"), "--tokenized"]
    command += ["--out", str(tmp_path / "out")]
    script = checkout / "scripts" / "fairseq-bnce"
    done = run_bare(script, *command)
    assert done.returncode == 2 and "fairseq_cli" in done.stdout
    done = run_bare(script, *command, "--text-only")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out" / "text" / "train.txt").read_text() == "a b\n" * 27


def test_the_command_that_is_installed(monkeypatch, capsys) -> None:
    """An entry point, for which pip writes a script that works from a folder with a space, too."""
    (target,) = re.findall(r'^fairseq-bnce = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    module, name = target.split(":")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(sys, "argv", ["fairseq-bnce", "--version"])
    try:
        with pytest.raises(SystemExit) as ended:
            getattr(importlib.import_module(module), name)()
        assert logging.root.manager.disable == logging.INFO
    finally:
        logging.disable(logging.NOTSET)
        sys.modules.pop(module, None)  # python -m would warn of it, in forks of this process
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("fairseq-bnce ")
    assert os.environ.pop("OMP_WAIT_POLICY") == "PASSIVE"


@pytest.mark.parametrize("command", ["prepare-text", "get-data"])
def test_making_data_imports_neither_torch_nor_fairseq(command: str) -> None:
    program = "import sys\nfrom fairseq_bnce import cli\n"
    program += f"try: cli.main(['{command}', '--help'])\nexcept SystemExit: pass\n"
    program += "print(sorted({'torch', 'fairseq', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert done.stdout.splitlines()[-1] == b"[]"


def test_what_measures_its_childrens_memory_stays_small() -> None:
    """Linux counts what the parent held as its child's peak."""
    program = "import sys, bench, compare, recipe\n"
    program += "from experiments.benches import decoding, scoring, vocabulary\n"
    program += "print(sorted({'torch', 'numpy', 'fairseq'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    assert subprocess.check_output([sys.executable, "-c", program], env=env) == b"[]\n"
