"""Jobs have client ids of their own, for quotas, and those that their users give them."""

import pytest

from sparklog.config import job_clients
from sparklog.spark.batch.compact import CompactOptions
from sparklog.spark.batch.load import LoadOptions
from sparklog.spark.batch.offload import OffloadOptions
from sparklog.spark.batch.sources import Source
from sparklog.spark.lake.delta.raw_table import RawTable


def client_ids(client):
    """Of Spark's jobs, with these settings of the client."""
    table, source = RawTable("/table"), Source("/files", "parquet", key="k", value="v")
    return [
        CompactOptions("b:1", client=client).settings()["client.id"],
        LoadOptions("b:1", "t", source, "name", client=client).settings()["client.id"],
        OffloadOptions("b:1", ("t",), table, client=client).reading().client.client_id,
    ]


def test_each_job_of_spark_has_its_own():
    assert client_ids({}) == [job_clients.COMPACT, job_clients.LOAD, job_clients.OFFLOAD]


def test_what_its_user_says_counts_first():
    assert client_ids({"client.id": "mine"}) == ["mine"] * 3


def test_an_option_of_the_source_counts_too():
    options = OffloadOptions("b:1", ("t",), RawTable("/table"), read_options={"kafka.client.id": "mine"})
    assert options.reading().client.client_id == "mine"


@pytest.mark.parametrize("settings", [{}, {"client.id": "x", "acks": "1"}])
def test_other_settings_stay(settings):
    assert job_clients.of_job("job", settings) == {"client.id": "job"} | settings
