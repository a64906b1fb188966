"""``docs/schema-registry.md``: its program runs, and its table of settings is that of the code."""

import re
from pathlib import Path

import pytest

from sparklog.config.definition import definitions
from sparklog.registry.settings import RegistrySettings
from sparklog.testing.registry import schema_registry

_PAGE = (Path(__file__).parents[2] / "docs" / "schema-registry.md").read_text()


@pytest.mark.integration
def test_the_program_of_a_producer_and_a_consumer(bootstrap, capsys):
    pytest.importorskip("fastavro")
    (program,) = re.findall(r"## Producer and Consumer\n\n```python\n(.*?)```", _PAGE, re.DOTALL)
    with schema_registry() as (url, _):
        exec(program, {"registry_url": url, "bootstrap": bootstrap})
    assert capsys.readouterr().out == "Zug\n"


def test_the_settings_are_those_of_the_code():
    (table,) = re.findall(r"<!-- settings of the registry -->\n\n.*?\n.*?\n(.*?)\n\n", _PAGE, re.DOTALL)
    rows = []
    for name, (_, definition) in definitions(RegistrySettings).items():
        default = "" if definition.default == () else definition.default
        rows.append(f"| `{name}` | {default} | {definition.doc} |")
    assert table.split("\n") == rows
