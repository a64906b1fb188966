"""What is said to who lacks a package: a line that works where it is typed."""

import tomllib
from pathlib import Path

import pytest

from sparklog.local import extras
from sparklog.local.extras import checkout, install_line

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sparklog"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_a_checkout_is_named_by_its_path():
    assert checkout() == ROOT
    assert install_line("spark") == f"pip install '{ROOT}[spark]'"


def test_an_installed_package_says_where_a_checkout_is_needed(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "site-packages" / "sparklog" / "local" / "extras.py"))
    assert checkout() is None
    assert install_line("avro").startswith("pip install '.[avro]' in a checkout of sparklog")


@pytest.mark.parametrize("name", ["spark", "avro", "connect", "demo"])
def test_the_parts_that_messages_name_are_there(name):
    assert name in EXTRAS


def test_no_message_names_an_index_that_has_sparklog():
    """None has it: the package that is missing is named, or a checkout, or a wheel."""
    said = {path.name for path in SOURCE.rglob("*.py") if "pip install 'sparklog[" in path.read_text()}
    assert not said
