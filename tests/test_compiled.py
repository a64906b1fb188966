"""The choice between the compiled form of some modules and their source."""

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import sparklog
from sparklog import compiled

FORM = "import sparklog.log.log as module; print(module.__file__)"


def form(**environ):
    """Where a new process imports a module of the list from."""
    done = subprocess.run(
        [sys.executable, "-c", FORM], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    return Path(done.stdout.strip()).name if done.returncode == 0 else done.stderr


@pytest.fixture
def root(tmp_path):
    """A tree in which everything of the list is compiled."""
    suffix = EXTENSION_SUFFIXES[0]
    for name in (*compiled.GROUPS, compiled.CODEC, *compiled.MODULES):
        source = tmp_path / compiled.source_of(name)
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
        (source.with_name(f"{name}__mypyc") if name in compiled.GROUPS else source).with_suffix(suffix).touch()
        os.utime(source, (1, 1))
    return tmp_path


def test_this_installation_is_compiled():
    assert sparklog.not_compiled == ("SPARKLOG_IMPL=python" if os.environ.get(compiled.VARIABLE) == "python" else None)


def test_every_module_of_the_list_is_one():
    for name in compiled.MODULES:
        assert (Path(sparklog.__file__).parents[1] / compiled.source_of(name)).is_file()


def test_the_form_is_chosen_by_the_environment():
    assert form(SPARKLOG_IMPL="python") == "log.py"
    assert form(SPARKLOG_IMPL="native").startswith("log.cpython-")


def test_what_is_whole_and_newer_than_its_source_is_used(root):
    assert compiled.why_not(root) is None


@pytest.mark.parametrize("missing", ["sparklog.log.log", "sparklog_store__mypyc", compiled.CODEC])
def test_without_a_part_none_is_used(root, missing):
    (root / compiled.source_of(missing)).with_suffix(EXTENSION_SUFFIXES[0]).unlink()
    assert compiled.why_not(root) == f"{missing} is not compiled"


def test_where_nothing_was_compiled_the_reason_says_what_was_missing(root):
    for binary in root.rglob(f"*{EXTENSION_SUFFIXES[0]}"):
        binary.unlink()
    assert compiled.why_not(root) == "it was built without a C compiler, or not built at all"


def test_code_older_than_its_source_is_not_used(root):
    binary = (root / compiled.source_of("sparklog.net.channel")).with_suffix(EXTENSION_SUFFIXES[0])
    os.utime(binary, (0, 0))
    assert compiled.why_not(root) == "sparklog.net.channel has changed since it was compiled"


def test_what_an_installer_wrote_before_its_record_is_used_in_whatever_order(root):
    record = root / "sparklog-1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.touch()
    source = root / compiled.source_of("sparklog.net.channel")
    os.utime(source.with_suffix(EXTENSION_SUFFIXES[0]), (2, 2))
    for at in (source, record):
        os.utime(at, (3, 3))
    assert compiled.why_not(root) is None
    os.utime(source, (4, 4))
    assert compiled.why_not(root) == "sparklog.net.channel has changed since it was compiled"


def test_a_form_that_is_insisted_on_and_missing_ends_the_import(tmp_path):
    package = tmp_path / "sparklog"
    shutil.copytree(Path(sparklog.__file__).parent, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    assert "SPARKLOG_IMPL=native, but " in form(SPARKLOG_IMPL="native", PYTHONPATH=str(tmp_path))
    assert form(PYTHONPATH=str(tmp_path)) == "log.py"


def test_a_broker_that_is_not_compiled_says_so():
    # It ends for a setting that it does not know, when it has said what it has to say.
    command = [sys.executable, "-m", "sparklog.cli.main", "broker", "--id", "0", "--set", "no.such.setting=1"]
    for wanted, is_said in (("python", True), ("native", False)):
        done = subprocess.run(
            command, env={**os.environ, compiled.VARIABLE: wanted}, capture_output=True, text=True, check=False
        )
        assert done.returncode
        assert ("the hot path is not compiled (SPARKLOG_IMPL=python)" in done.stderr) is is_said
