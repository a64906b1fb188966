"""``format("sparklog")`` is found with nothing registered, by the rules of Spark's lookup."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog

_PACKAGES = Path(sparklog.__file__).parents[1]

_LOOKUP = """
import io
from pyspark.sql.worker.lookup_data_sources import _main
found = io.BytesIO()
_main(io.BytesIO(), found)
print(b"sparklog.spark.source" in found.getvalue() and b"SparklogDataSource" in found.getvalue())
"""

_HEAVY = """
import sys
import pyspark.sql.datasource
before = set(sys.modules)
import pyspark_sparklog
print(sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def _python(code, *paths):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*paths, _PACKAGES)))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)


def test_the_lookup_finds_the_source_and_pickles_it_by_reference():
    done = _python(_LOOKUP)
    assert done.stdout.strip() == "True", done.stderr


def test_finding_it_imports_nothing_but_itself():
    assert _python(_HEAVY).stdout.strip() == "['pyspark_sparklog', 'sparklog']"


def test_a_broken_neighbour_breaks_the_lookup_and_is_named(tmp_path):
    (tmp_path / "pyspark_broken.py").write_text("raise ImportError('the neighbour is broken')")
    done = _python(_LOOKUP, tmp_path)
    assert done.returncode != 0
    assert "the neighbour is broken" in done.stderr


def test_a_neighbour_without_a_source_does_no_harm(tmp_path):
    (tmp_path / "pyspark_other.py").write_text("x = 1")
    assert _python(_LOOKUP, tmp_path).stdout.strip() == "True"


@pytest.mark.spark
def test_the_session_knows_the_format(spark, read, make_topic, produce):
    topic = make_topic()
    produce(topic, {"value": b"x"})
    assert read(subscribe=topic).count() == 1


@pytest.mark.spark
def test_registering_by_hand_works_too(spark, read, make_topic, produce):
    from sparklog.spark.source import SparklogDataSource

    topic = make_topic()
    produce(topic, {"value": b"x"})
    spark.dataSource.register(SparklogDataSource)
    assert read(subscribe=topic).count() == 1
