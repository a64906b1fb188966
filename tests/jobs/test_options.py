"""What the jobs' arguments come to: each option reaches what the job is run with."""

import importlib.util

import pytest

from sparklog.cli.jobs import path_of
from sparklog.errors import ConfigError
from sparklog.spark.batch.load import LoadOptions
from sparklog.spark.batch.offload import OffloadOptions
from sparklog.spark.batch.sources import Source
from sparklog.spark.lake.delta.decoded_table import DecodedTable
from sparklog.spark.lake.delta.decoded_upsert_table import DecodedUpsertTable
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.spark.lake.delta.upsert_table import UpsertTable
from sparklog.spark.lake.places.file_place import FilesTarget
from sparklog.spark.lake.places.jdbc import Database
from sparklog.spark.lake.places.jdbc_table import JdbcTable
from sparklog.spark.values.formats import ValueFormat

CLIENT = {"bootstrap.servers": "a:1"}
DDL = "n BIGINT"
JSON = ValueFormat("json", DDL)
DAY_S = 86_400.0


def job(name):
    spec = importlib.util.spec_from_file_location(f"{name}_job", path_of(name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def offload_options(text):
    module = job("offload")
    return module._options(module.arguments().parse_args(["-t", "clicks", *text.split(" ")]), CLIENT)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("--table /t", RawTable("/t", ("day",))),
        ("--table /t --partition-by hour,topic", RawTable("/t", ("hour", "topic"))),
        ("--table /t --partition-by ", RawTable("/t", ())),
        ("--table /t --compression zstd", RawTable("/t", ("day",), "zstd")),
        ("--table /t --merge-files 20", RawTable("/t", ("day",), maintenance=Maintenance(20))),
        ("--table /t --vacuum 7d", RawTable("/t", ("day",), maintenance=Maintenance(None, 7 * DAY_S))),
        (
            "--table /t --vacuum 1d --unsafe-vacuum",
            RawTable("/t", ("day",), maintenance=Maintenance(None, DAY_S, is_vacuum_unsafe=True)),
        ),
        ("--table /t --upsert", UpsertTable("/t")),
        ("--table /t --upsert --compression gzip", UpsertTable("/t", "gzip")),
        ("--table /t --upsert --skip-keyless", UpsertTable("/t", skip_keyless=True)),
        ("--table /t --upsert --accept-partitions", UpsertTable("/t", more_partitions=True)),
        ("--table /t --upsert --merge-files 3", UpsertTable("/t", maintenance=Maintenance(3))),
        ("--table /t --value-format json --schema SCHEMA", DecodedTable("/t", JSON)),
        (
            "--table /t --value-format json --schema SCHEMA --partition-by n",
            DecodedTable("/t", JSON, partition_by=("n",)),
        ),
        ("--table /t --value-format json --schema SCHEMA --evolve", DecodedTable("/t", JSON, evolve=True)),
        ("--table /t --value-format json --schema SCHEMA --into click", DecodedTable("/t", JSON, into="click")),
        (
            "--table /t --value-format json --schema SCHEMA --with value,headers",
            DecodedTable("/t", JSON, extra=("value", "headers")),
        ),
        (
            "--table /t --value-format json --schema SCHEMA --key-format string",
            DecodedTable("/t", JSON, key_format="string"),
        ),
        (
            "--table /t --value-format json --schema SCHEMA --dead-letters /d",
            DecodedTable("/t", JSON, dead_letters="/d"),
        ),
        (
            "--table /t --value-format json --schema SCHEMA --upsert --skip-keyless --accept-partitions",
            DecodedUpsertTable("/t", JSON, skip_keyless=True, more_partitions=True),
        ),
        ("--files /f", FilesTarget("/f")),
        ("--files /f --format segments", FilesTarget("/f", "segments")),
        ("--files /f --compression zstd", FilesTarget("/f", compression="zstd")),
        (
            "--jdbc jdbc:postgresql://h/d --jdbc-user u --jdbc-table s.t --jdbc-driver C",
            JdbcTable(Database("jdbc:postgresql://h/d", "u", None, "C"), "s.t"),
        ),
    ],
    ids=str,
)
def test_where_an_offload_goes(tmp_path, text, target):
    (tmp_path / "schema").write_text(DDL)
    assert offload_options(text.replace("SCHEMA", str(tmp_path / "schema"))).target == target


def test_a_file_with_a_password_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(ConfigError, match=f"the password cannot be read from {path}: it is not UTF-8 text"):
        offload_options(f"--jdbc jdbc:postgresql://h/d --jdbc-password-file {path}")


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("", {}),
        ("--topic views", {"topics": ("clicks", "views")}),
        ("--add-topics", {"add_topics": True}),
        ("--accept-loss", {"fail_on_data_loss": False}),
        ("--group lag", {"group": "lag"}),
        ("--task-token 2m", {"task_token_ms": 120_000}),
    ],
)
def test_how_an_offload_goes(text, more):
    given = {"topics": ("clicks",), "target": RawTable("/t", ("day",)), "client": CLIENT, **more}
    assert offload_options(f"--table /t {text}".strip()) == OffloadOptions("a:1", **given)


@pytest.mark.parametrize(
    ("text", "columns", "more"),
    [
        ("", {}, {}),
        ("--key id", {"key": "id"}, {}),
        ("--value text", {"value": "text"}, {}),
        ("--value-json", {}, {}),
        ("--timestamp at", {"timestamp": "at"}, {}),
        ("--headers h", {"headers": "h"}, {}),
        ("--partition-col p", {"partition": "p"}, {}),
        ("--keep-order", {"keep_order": True}, {}),
        ("--option mode=DROPMALFORMED --option sep==", {"options": {"mode": "DROPMALFORMED", "sep": "="}}, {}),
        ("--via produce", {}, {"via": "produce"}),
        ("--compression zstd", {}, {"compression": "zstd"}),
        ("--task-token 2m", {}, {"task_token_ms": 120_000}),
    ],
)
def test_what_a_load_loads(text, columns, more):
    module = job("load")
    given = ["-t", "clicks", "--from", "/f", "--format", "csv", "--name", "n", *text.split()]
    source = Source("/f", "csv", **columns)
    found = module._options(module.arguments().parse_args(given), CLIENT)
    assert found == LoadOptions("a:1", "clicks", source, "n", **{"via": "adopt", "client": CLIENT, **more})
