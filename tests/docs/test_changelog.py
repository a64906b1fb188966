"""The programs on the page about changelogs: the table has what the database had."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from sparklog import spark as spark_package
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.values.formats import ValueFormat
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.programs import run_program

pytestmark = [pytest.mark.spark, pytest.mark.integration]
PAGE = Path(__file__).parents[2] / "docs" / "changelog-to-table.md"
_PROGRAM = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def broker(tmp_path):
    """The page's topic names, on a broker of the test's own."""
    with ClusterHarness(tmp_path / "cluster") as harness:
        yield harness.bootstrap_servers


@pytest.fixture
def shared(spark, interpreted, delta_jars, monkeypatch):
    """The page's program of Spark has the tests' session, which outlives it."""
    del interpreted, delta_jars
    monkeypatch.setattr(spark_package, "session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)


@pytest.mark.usefixtures("shared")
def test_the_table_has_what_the_database_had(spark, broker, tmp_path, monkeypatch, capsys):
    programs = dict(_PROGRAM.findall(PAGE.read_text()))
    assert programs.keys() == {"changes.py", "table.py"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    changes = run_program([sys.executable, "changes.py", broker, "1000"], tmp_path, timeout=150)
    told = changes.stdout.splitlines()[-1]
    assert re.fullmatch(r"[1-9]\d* customers, [1-9]\d* orders", told)
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["table.py", broker, str(tmp_path / "table")])
    runpy.run_path(str(tmp_path / "table.py"))
    assert told in capsys.readouterr().out.splitlines()
    (schema,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    target = DecodedUpsertTable(str(tmp_path / "decoded"), ValueFormat("json", schema), key_format="string")
    run(spark, OffloadOptions(broker, ("customers",), target))
    columns = spark.read.format("delta").load(target.name).where("op <> 'd'").select("after.*")
    assert told == "{} customers, {} orders".format(*columns.selectExpr("count(id)", "sum(orders)").first())
