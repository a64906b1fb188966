"""What ``make package`` makes: the same bytes each time, of no machine; it is installed and used on each Python."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from packages.pythons import HOUSE, VERSIONS, copy_of_the_house, make_package, python_of

from sparklog import __version__
from sparklog.compiled import GROUPS, MODULES, NOTHING, VARIABLE

pytestmark = pytest.mark.timeout(3600)
EPOCH = 1_700_000_000
OURS = (
    "src",
    "jobs",
    "conf",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "setup.py",
    "PKG-INFO",
    "setup.cfg",
)
"""What a source package has at its top."""
CODEC_IN_USE = "from sparklog.record._impl import codec; print(codec.__name__)"


def source_package_of(house, to, epoch=EPOCH):
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", to]
    subprocess.run(command, cwd=house, env=environ, check=True, capture_output=True)
    return next(to.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return copy_of_the_house(tmp_path_factory.mktemp("one") / "house")


@pytest.fixture(scope="module")
def packages(house, tmp_path_factory):
    """The wheel and the source package by the Python of this run."""
    return make_package(house, sys.executable, tmp_path_factory.mktemp("packages"))


def test_a_source_package_has_the_licence_and_what_a_wheel_is_built_from_and_nothing_of_the_machine(house, tmp_path):
    with tarfile.open(source_package_of(house, tmp_path)) as archive:
        members = archive.getmembers()
    names = {Path(each.name).relative_to(f"sparklog-{__version__}") for each in members}
    assert {each.parts[0] for each in names} == set(OURS)
    assert {path.relative_to(house) for path in (house / "src" / "sparklog").rglob("*") if path.is_file()} <= names
    assert not [each for each in names if re.match(r"(test_.*|conftest)\.py$|.*\.(so|c|pyc)$", each.name)]
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in members} == {(0, 0, "", "", EPOCH)}
    assert {each.mode for each in members} <= {0o644, 0o755}


@pytest.mark.slow
def test_two_builds_in_two_places_by_two_people_at_two_times_are_the_same_bytes(house, packages, tmp_path):
    other = copy_of_the_house(tmp_path / "another" / "place" / "of-another-length", house)
    for path in other.rglob("*"):
        if ".git" not in path.parts:
            os.utime(path, (EPOCH, EPOCH))
    for one, two in zip(packages, make_package(other, sys.executable, tmp_path / "dist", umask=0o077), strict=True):
        assert one.name == two.name
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_the_source_package_builds_the_same_wheel(packages, tmp_path):
    wheel, source = packages
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (house,) = tmp_path.iterdir()
    shutil.copy(HOUSE / "Makefile", house)
    commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=HOUSE, check=True, capture_output=True, text=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", commit.stdout.strip())
        rebuilt, again = make_package(house, sys.executable, tmp_path / "dist")
    assert rebuilt.read_bytes() == wheel.read_bytes()
    assert again.read_bytes() == source.read_bytes()


@pytest.mark.slow
def test_a_wheel_is_whole_and_of_no_machine(packages, house):
    wheel, _ = packages
    tags = wheel.stem.split("-")[-1].split(".")
    assert all(re.fullmatch(r"manylinux(2014|_2_\d+)_\w+", each) for each in tags)
    machine = [str(each).encode() for each in (house, HOUSE, sys.prefix, sys.base_prefix, Path.home(), "/tmp/")]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        binaries = {each: archive.read(each) for each in names if each.endswith(".so")}
    assert {each.split(".cpython-")[0].replace("/", ".") for each in binaries} == {
        *MODULES, *(f"{group}__mypyc" for group in GROUPS), "sparklog.record._impl._codec",
    }  # fmt: skip
    assert not [(name, each) for name, binary in binaries.items() for each in machine if each in binary]
    assert f"sparklog-{__version__}.dist-info/licenses/LICENSE" in names
    library = house / "src"
    assert {
        each.relative_to(library).as_posix()
        for each in (library / "sparklog").rglob("*")
        if each.is_file() and each.suffix != ".pxi"
    } <= {*names}
    assert not [each for each in names if re.search(r"(^|/)(test_|tests/|conftest)|\.(c|pxi)$", each)]
    assert {f"sparklog-{__version__}.data/data/share/sparklog/{path}" for path in data(house)} <= {*names}


def data(house):
    """What lies beside the library: jobs, and examples of settings and units."""
    found = {path for each in ("jobs", "conf") for path in (house / each).rglob("*") if path.is_file()}
    return {each for path in found if (each := path.relative_to(house)).parts[1] not in ("packaging", "site")}


@pytest.mark.slow
def test_where_there_is_no_c_compiler_a_build_gives_a_python_form_that_says_so(house, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "/bin/false")
    monkeypatch.delenv(VARIABLE, raising=False)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, house]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [each for each in archive.namelist() if each.endswith(".so")]
        archive.extractall(tmp_path / "installed")

    def run(*arguments):
        command = [sys.executable, *arguments]
        environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-m", "sparklog.cli.main", "--version") == f"sparklog, version {__version__} (not compiled: {NOTHING})\n"
    assert run("-c", CODEC_IN_USE) == "sparklog.record._impl.pure\n"

    monkeypatch.setenv(VARIABLE, "native")
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0


@contextmanager
def cluster_of(program, directory):
    """``up`` on free ports: its first broker's address."""
    command = [program, "up", "--port", "0", "--data", directory / "data"]
    with (directory / "up.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield next(found[1] for line in process.stdout if (found := re.match(r"broker 0 +(\S+) ", line)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("version", VERSIONS)
def test_installed_into_a_clean_environment_it_works(version, house, packages, tmp_path, monkeypatch):
    python = python_of(version)
    if python is None:
        pytest.skip(f"no Python {version} with its headers is on this machine")
    for name in ("PYTHONPATH", "SPARKLOG_IMPL", "SPARKLOG_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    is_this = version == "{}.{}".format(*sys.version_info)
    wheel, _ = packages if is_this else make_package(house, python, tmp_path / "dist")
    home = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", home], check=True)
    subprocess.run([home / "bin" / "pip", "install", "--quiet", "--no-input", wheel], check=True)
    # ZooKeeper's JARs are PySpark's, half a gigabyte: those that are here.
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "pyspark").symlink_to(find_spec("pyspark").submodule_search_locations[0])

    program = home / "bin" / "sparklog"

    def run(*arguments, text=""):
        done = subprocess.run(
            [program, *arguments], input=text, capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version") == f"sparklog, version {__version__} (compiled)\n"
    with cluster_of(program, tmp_path) as bootstrap:
        run("topic", "create", "greetings", "--partitions", "2", "--bootstrap", bootstrap)
        run("produce", "greetings", "--bootstrap", bootstrap, text="hello\nworld\n")
        assert sorted(run("consume", "greetings", "--bootstrap", bootstrap).split()) == ["hello", "world"]
