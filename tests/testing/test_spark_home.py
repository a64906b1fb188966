"""A home of Spark whose Python workers start sooner."""

import os
import subprocess
import sys

import pytest

from sparklog.local.jars import pyspark_jars
from sparklog.testing.spark_home import make_spark_home

OF_THE_MODULE = {"pyspark.sql.pandas.serializers"}
OF_ALL = {"pyarrow.lib", "sparklog.client.cluster.metadata", "sparklog.record.columnar", "sparklog.spark.write.rows"}


@pytest.fixture
def imported(tmp_path):
    """What is imported by modules that Python imports, for ``-m`` and these arguments, where its path is as Spark makes
    it. Its input is at its end.
    """
    path = make_spark_home(tmp_path) / "python" / "lib" / "pyspark.zip"

    def told(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            env={**os.environ, "PYTHONPATH": str(path), "PYTHONPROFILEIMPORTTIME": "1"},
            input=b"",
            capture_output=True,
            check=False,  # a daemon whose input ends says so
        )
        return {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}

    return told


def test_it_is_the_installed_one_but_for_the_archives(tmp_path):
    home, installed = make_spark_home(tmp_path), pyspark_jars().parent
    for each in ("bin", "jars", "__init__.py"):
        assert (home / each).samefile(installed / each)
    assert {each.name for each in installed.iterdir()} == {each.name for each in home.iterdir()}
    assert [str(path.relative_to(home)) for path in (home / "python").rglob("*") if path.is_file()] == [
        "python/lib/pyspark.zip/sitecustomize.py"
    ]


def test_a_daemon_imports_what_its_workers_will(imported):
    assert imported("pyspark.daemon", "pyspark.worker") >= OF_THE_MODULE | OF_ALL


def test_no_other_program_does(imported):
    assert imported("pyspark.find_spark_home").isdisjoint(OF_ALL)
