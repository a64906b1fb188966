"""Reports of erasures as files."""

import json
from uuid import UUID

import click
import pytest

from sparklog.cli.erasure_report import default_path, document_of, read_report, reserved, write_report
from sparklog.client.admin.erasure import ErasedReplica, ErasureReport, SearchedSegment
from sparklog.client.admin.log_dirs import Replica
from sparklog.structs import BrokerId, TopicPartition

CLEAN = ErasedReplica(40, 2, 30, 3000, 5, 1, 0, (SearchedSegment(0, 3000, "ab" * 32),))
AWAY = ErasedReplica(41, obstacle="broker 3 cannot be asked")
REPORT = ErasureReport(
    cluster_id="C",
    topic="users",
    topic_id=UUID(int=1),
    erasure_id=UUID(int=2),
    scan_only=False,
    begun_ms=1_700_000_000_000,
    ended_ms=1_700_000_001_500,
    key_count=2,
    keys_sha256="cd" * 32,
    replicas={
        Replica(TopicPartition("users", 0), BrokerId(1)): CLEAN,
        Replica(TopicPartition("users", 1), BrokerId(3)): AWAY,
    },
)


def test_a_report_that_is_written_can_be_checked(tmp_path):
    path = tmp_path / "proof.json"
    with reserved(path):
        write_report(path, REPORT)
    known = read_report(path)
    assert (known.topic, known.topic_id, known.ends) == ("users", UUID(int=1), {0: 40, 1: 41})
    assert (known.key_count, known.keys_sha256) == (2, "cd" * 32)
    assert json.loads(path.read_text()) == document_of(REPORT)
    with pytest.raises(click.UsageError, match="is there already"), reserved(path):
        pytest.fail("it was given away")
    assert json.loads(path.read_text()) == document_of(REPORT)


def test_all_that_a_report_says():
    found = document_of(REPORT)
    clean, away = found.pop("replicas")
    assert found == {
        "format": 1,
        "complete": False,
        "searched_only": False,
        "cluster_id": "C",
        "topic": "users",
        "topic_id": str(UUID(int=1)),
        "erasure_id": str(UUID(int=2)),
        "begun": "2023-11-14T22:13:20.000+00:00",
        "ended": "2023-11-14T22:13:21.500+00:00",
        "keys": {"count": 2, "sha256": "cd" * 32},
    }
    assert clean == {
        "partition": 0,
        "broker": 1,
        "up_to_offset": 40,
        "log_start_offset": 2,
        "records_scanned": 30,
        "bytes_scanned": 3000,
        "records_erased": 5,
        "segments_rewritten": 1,
        "records_left": 0,
        "obstacle": None,
        "segments": [{"file": "00000000000000000000.log", "size": 3000, "sha256": "ab" * 32}],
    }
    assert (away["records_left"], away["obstacle"], away["segments"]) == (-1, "broker 3 cannot be asked", [])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"topic": "t", "topic_id": "no", "replicas": [], "keys": {}}', "\xff"]
)
def test_what_is_no_report_is_refused(tmp_path, text):
    path = tmp_path / "proof.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(click.UsageError, match="is not the report of an erasure"):
        read_report(path)


def test_a_report_has_a_name_of_its_own():
    assert default_path("users").name.startswith("erasure-users-2")
    with pytest.raises(click.UsageError, match="there is no directory"), reserved(default_path("no/users")):
        pytest.fail("there is no such directory")


@pytest.mark.parametrize(
    "replicas",
    [
        [],
        [{"partition": 0, "up_to_offset": -5}],
        [{"partition": 0, "up_to_offset": 10**20}],
        [{"partition": -1, "up_to_offset": 5}],
        [{"partition": 2**31, "up_to_offset": 5}],
    ],
)
def test_a_report_that_would_check_nothing_is_refused(tmp_path, replicas):
    path = tmp_path / "proof.json"
    keys = {"count": 1, "sha256": "ab" * 32}
    path.write_text(json.dumps({"topic": "t", "topic_id": str(UUID(int=1)), "replicas": replicas, "keys": keys}))
    with pytest.raises(click.UsageError, match="is not the report of an erasure"):
        read_report(path)
