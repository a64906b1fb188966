"""The shared Spark session, with Delta Lake on it."""

from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.spark


def test_a_delta_table_is_written_and_read(spark, delta_jars, tmp_path):
    table = str(tmp_path / "table")
    spark.range(10).write.format("delta").save(table)
    spark.range(10, 15).write.format("delta").mode("append").save(table)
    assert spark.read.format("delta").load(table).count() == 15
    assert spark.read.format("delta").option("versionAsOf", 0).load(table).count() == 10


def test_python_runs_in_the_workers(spark):
    batches = spark.range(4).mapInArrow(lambda batches: batches, "id long")
    assert sorted(row.id for row in batches.collect()) == [0, 1, 2, 3]


def test_workers_import_what_is_installed(spark):
    def where(rows):
        yield pyspark.__file__

    (found,) = spark.sparkContext.parallelize([0], 1).mapPartitions(where).collect()
    assert Path(found) == Path(pyspark.__file__)
