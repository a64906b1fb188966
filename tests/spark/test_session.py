import pytest

from sparklog.spark import session

pytestmark = pytest.mark.spark


def test_the_session_of_the_process_is_found_and_set(spark):
    found = session("mine", spark_sql_shuffle_partitions=3)
    try:
        assert found.sparkContext is spark.sparkContext
        assert found.conf.get("spark.sql.shuffle.partitions") == "3"
        assert found.conf.get("spark.sql.execution.arrow.maxBytesPerBatch") == "2147483647"
        assert found.conf.get("spark.sql.session.timeZone") == "UTC"
    finally:
        found.conf.set("spark.sql.shuffle.partitions", "2")
