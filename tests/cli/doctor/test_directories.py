"""Log directories that are full, or out of use."""

import pytest

from sparklog.cli.doctor.directories import directory_findings
from sparklog.cli.doctor.finding import Severity
from sparklog.client.admin.log_dirs import LogDir
from sparklog.structs import TopicPartition


@pytest.mark.parametrize(
    ("usable", "severity"),
    [(16, None), (15, Severity.WARNING), (6, Severity.WARNING), (5, Severity.ERROR), (0, Severity.ERROR), (-1, None)],
)
def test_how_full_is_too_full(usable, severity):
    found = list(directory_findings({3: [LogDir("/data", None, 100, usable, {})]}, 85))
    assert [each.severity for each in found] == ([] if severity is None else [severity])
    assert [each.where for each in found] == ([] if severity is None else [("broker 3 /data",)])


def test_from_95_percent_on_it_is_an_error_whatever_is_asked_for():
    (found,) = directory_findings({3: [LogDir("/data", None, 100, 4, {})]}, 100)
    assert found.severity is Severity.ERROR


def test_the_largest_partition_is_named():
    sizes = {TopicPartition("a", 0): 10, TopicPartition("b", 7): 50}
    (found,) = directory_findings({3: [LogDir("/data", None, 100, 10, sizes)]}, 85)
    assert "sparklog topic alter b --config retention.ms=" in found.advice
    assert found.advice.endswith("; or move it to other brokers: sparklog cluster reassign --topic b --brokers ID,ID")


def test_the_emptiest_other_directory_of_the_broker_is_where_to_move_it():
    directories = [
        LogDir("/data", None, 100, 10, {TopicPartition("b", 7): 50}),
        LogDir("/disk2", None, 100, 30, {}),
        LogDir("/disk 3", None, 1000, 400, {}),
        LogDir("/disk4", "KAFKA_STORAGE_ERROR", 1000, 900, {}),
        LogDir("/disk5", None, -1, -1, {}),
    ]
    found, _ = directory_findings({3: directories}, 85)
    assert found.advice.endswith("; or move it: sparklog log move b --partition 7 --broker 3 --to '/disk 3'")


def test_a_disk_that_is_nearly_as_full_is_not_where_to_move_it():
    directories = [
        LogDir("/data", None, 100, 10, {TopicPartition("b", 7): 50}),
        LogDir("/disk2", None, 100, 40, {TopicPartition("b", 8): 1}),
    ]
    (found,) = directory_findings({3: directories}, 85)
    assert "sparklog log move" not in found.advice


def test_a_disk_that_other_files_fill():
    sizes = {TopicPartition("a", 0): 10}
    (found,) = directory_findings({3: [LogDir("/my data", None, 100, 5, sizes)]}, 85)
    assert found.advice.startswith(
        "85 of 100 bytes are taken by other files than the broker's: see on its host du -xh '/my data/..'; or have"
    )


def test_a_directory_out_of_use():
    (found,) = directory_findings({3: [LogDir("/data", "KAFKA_STORAGE_ERROR", -1, -1, {})]}, 85)
    assert (found.severity, found.where) == (Severity.ERROR, ("broker 3 /data",))
    assert "KAFKA_STORAGE_ERROR" in found.what
