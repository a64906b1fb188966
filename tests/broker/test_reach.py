"""How far the broker's modules reach: a partition is asked, its log is not."""

import ast
from pathlib import Path

import pytest

import sparklog.broker

HOME = Path(sparklog.broker.__file__).parent


def touches_of_a_log(source):
    """The lines in which something's ``log`` is touched."""
    touches = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute) and node.attr == "log")
    return sorted(node.lineno for node in touches)


@pytest.mark.parametrize("module", sorted(HOME.rglob("*.py")), ids=lambda path: str(path.relative_to(HOME)))
def test_no_module_of_the_broker_touches_a_log(module):
    assert touches_of_a_log(module.read_text()) == []


def test_a_touch_is_found_and_an_import_is_not():
    source = "from sparklog.log.files import x\nheld(tp).log.read(0)\nend = partition.log\n"
    assert sorted(touches_of_a_log(source)) == [2, 3]
