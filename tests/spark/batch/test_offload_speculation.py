"""A task that Spark does twice at a time, on two executors: both attempts write, and the place has each row once."""

import random
from pathlib import Path

import pytest
from spark.batch.offloaded import Sent, in_log, in_parquet, in_table, last_of_each_key
from spark.batch.speculated_offload import FILES, ROUNDS, UPSERT
from spark.speculation import run_speculated

from sparklog.client import Producer
from sparklog.spark.lake.places.file_manifest import read_manifest

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).with_name("speculated_offload.py")


def test_two_attempts_write_and_one_counts(spark, interpreted, delta_jars, quick_spark, cluster, make, tmp_path):
    del interpreted, delta_jars
    topic, servers = make(2), cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        sent = Sent(random.Random(0), topic, 2, keys=20)
        for _ in range(6):
            sent.write(producer, least=10)
    run_speculated(PROGRAM, servers, topic, tmp_path, quick_spark)
    log = in_log(spark, servers, topic)
    for kind, heard in ROUNDS:
        place = tmp_path / f"{kind}-{heard}"
        assert sorted(each.name for each in (tmp_path / "attempts" / place.name).iterdir()) == ["0", "1"]
        if kind == FILES:
            rows, named = in_parquet(spark, str(place)), len(read_manifest(str(place)).files)
        else:
            rows, named = in_table(spark, str(place)), len(spark.read.format("delta").load(str(place)).inputFiles())
        assert rows == (last_of_each_key(log) if kind == UPSERT else log), place.name
        assert sum(1 for _ in place.rglob("*.parquet")) > named, f"{place.name} has no file of another attempt"
