"""Which sources are found to be missing before Spark starts."""

import pytest

from sparklog.errors import DataSourceError
from sparklog.spark.batch.sources import Source, require_source


def test_a_path_that_is_not_there_needs_no_spark(tmp_path):
    (tmp_path / "file").touch()
    for missing in ("none", "none/below", "file/below"):
        path = tmp_path / missing
        with pytest.raises(DataSourceError, match=rf"SPARKLOG_NOT_LOADED\] {path} is not there, and nothing of it is"):
            require_source(Source(str(path), "parquet"), {})
    require_source(Source(str(tmp_path / "file"), "parquet"), {"SPARK_HOME": ""})


@pytest.mark.parametrize(
    ("path", "kind", "environment"),
    [
        ("{}/day=*", "parquet", {}),
        ("{}/a[0-9]", "csv", {}),
        ("file:{}/none", "json", {}),
        ("s3a://bucket{}", "json", {}),
        ("{}/table@v3", "delta", {}),
        ("{}/none\0", "json", {}),
        ("{}/none", "json", {"HADOOP_CONF_DIR": "/etc/hadoop"}),
        ("{}/none", "json", {"PYSPARK_GATEWAY_PORT": "4000"}),
        ("{}/none", "json", {"SPARK_REMOTE": "sc://spark"}),
    ],
)
def test_what_may_be_elsewhere_is_sparks_to_find(tmp_path, path, kind, environment):
    require_source(Source(path.format(tmp_path), kind), environment)
