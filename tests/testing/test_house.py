"""The house's own files say what the code says."""

import os
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

from fix_programs import PACKAGES, not_run

from sparklog.config.broker import BrokerConfig, parse_broker_config
from sparklog.config.properties import load_properties
from sparklog.local.jars import JAR_SETS

HOUSE = Path(__file__).parents[2]

MOST_MODULES = 28
"""A room that one can look over has some 25."""


def test_the_example_of_broker_settings_shows_the_defaults():
    assert parse_broker_config(load_properties(HOUSE / "conf" / "broker.properties")) == BrokerConfig()


def test_spark_jobs_use_the_delta_that_tests_use():
    text = (HOUSE / "conf" / "spark-defaults.conf").read_text()
    (packages,) = re.findall(r"^# spark\.jars\.packages +(\S+)$", text, re.MULTILINE)
    assert packages.split(",") == list(JAR_SETS["delta"].roots)


def test_the_check_of_a_change_can_be_run():
    assert os.access(HOUSE / ".ci" / "run", os.X_OK)


def test_make_installs_the_programs_that_tests_need():
    wanted = re.findall(r"^\t\$\(call want,([^\s,]+),([^)]+)\)$", (HOUSE / "Makefile").read_text(), re.MULTILINE)
    assert {program: packages.replace(",", " ") for program, packages in wanted} == PACKAGES


def test_a_run_ends_with_what_was_not_run_and_what_to_type():
    reasons = [f"Skipped: kcat is missing; type: {line}" for line in ("A", "A", "B")] + ["Skipped: not a segment"]
    assert not_run(reasons) == "not run: 2 tests: kcat is missing; type: A; 1 test: kcat is missing; type: B"
    assert not_run(["Skipped: not a segment"]) == ""


def test_a_test_module_has_the_name_of_what_it_tests_or_is_said_not_to():
    page = (HOUSE / "docs" / "developing.md").read_text()
    (section,) = re.findall(r"^## Where tests are$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    folders = set(re.findall(r"`tests/(\w+)/`", section))
    paths = {path.relative_to(HOUSE / "tests") for path in (HOUSE / "tests").rglob("test_*.py")}
    strays = {str(path) for path in paths if path.parts[0] not in folders and not _has_its_mirror(path)}
    assert strays == set(re.findall(r"`([\w/]+/test_\w+\.py)`", section))


def test_a_room_can_be_looked_over():
    counted = Counter(path.parent for path in (HOUSE / "src" / "sparklog").rglob("*.py"))
    assert {str(room): modules for room, modules in counted.items() if modules > MOST_MODULES} == {}


def test_the_page_of_the_architecture_has_the_layers_that_are_checked():
    contracts = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["name"] == "layers")
    page = (HOUSE / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+`(?: \\\| )?)+) \|", page, re.MULTILINE)
    told = [(int(number), re.findall(r"\w+", packages)) for number, packages in rows]
    assert told == [(len(layers) - place, re.findall(r"\w+", layer)) for place, layer in enumerate(layers)]


def _has_its_mirror(test):
    """Whether it begins with the name of a module or a package of the same folder, or of the folder itself."""
    folder = HOUSE / "src" / "sparklog" / test.parent
    names = {each.stem.strip("_") for each in (folder, *folder.iterdir())} if folder.is_dir() else set()
    return any(re.fullmatch(f"test_{name}(_\\w+)?", test.stem) for name in names)


def test_what_was_compiled_of_a_module_that_is_gone_is_removed(tmp_path):
    """Python would take it for a module of the package where it lies."""
    package = tmp_path / "src" / "sparklog"
    package.mkdir(parents=True)
    kept = [package / name for name in ("here.py", "here.cpython-311-x86_64-linux-gnu.so", "c.pyx", "c.abi3.so")]
    for path in (*kept, package / "gone.cpython-311-x86_64-linux-gnu.so"):
        path.write_text("MODULES = ()\n")
    setup = ["make", "-f", HOUSE / "Makefile", "-o", ".venv/.ready", "-o", ".venv/.compiled", "setup"]
    subprocess.run(setup, cwd=tmp_path, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert sorted(package.iterdir()) == sorted(kept)
