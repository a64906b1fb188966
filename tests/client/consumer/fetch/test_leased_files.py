"""All batches of a range, from a real broker's files where they can be read, and by Fetch where not."""

from contextlib import closing

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.leases import lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.fetch import leased_files, segment_files
from sparklog.client.consumer.fetch.leased_files import read_everything
from sparklog.errors import ApiError, NotDirect
from sparklog.structs import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def tp(bootstrap, topic):
    """A partition with a dozen segments, and transactions that ended either way."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, {"segment.bytes": "500"})])
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin_transaction()
            for each in range(5):
                producer.send(topic, bytes(50), key=b"%d" % each)
            producer.flush()
            (producer.commit_transaction if number % 2 else producer.abort_transaction)()
    return TopicPartition(topic, 0)


@pytest.fixture
def read(bootstrap, tp):
    """``read(start, end)``: base offsets, and all bytes."""

    def everything(start, end, topic_id=None):
        with ClusterMetadata(ClientConfig.from_properties({"bootstrap.servers": bootstrap})) as found:
            known = topic_id or found.topic(tp.topic).topic_id
            with closing(read_everything(found, tp, start, end, known)) as batches:
                taken = [(batch.base_offset, bytes(batch.buffer)) for batch in batches]
        return [base for base, _ in taken], b"".join(data for _, data in taken)

    return everything


def log_bytes(cluster, tp):
    directory = cluster.directory.broker(0) / str(tp)
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_files_are_read_as_they_are(cluster, tp, read, monkeypatch):
    monkeypatch.setattr(leased_files, "_FILES_AT_ONCE", 5)  # so that it takes several leases
    monkeypatch.delattr(leased_files, "fetch_everything")
    bases, data = read(0, 72)
    assert data == log_bytes(cluster, tp)
    assert bases == [base for number in range(12) for base in (6 * number, 6 * number + 5)]
    assert read(7, 18)[0] == [6, 11, 12, 17]  # a batch that holds an offset of the range is whole


def test_files_are_read_by_a_client_that_has_asked_for_nothing_before(bootstrap, cluster, tp, read, monkeypatch):
    with Admin(bootstrap_servers=bootstrap) as admin:
        topic_id = admin.describe_topics([tp.topic])[tp.topic].topic_id
    monkeypatch.delattr(leased_files, "fetch_everything")
    assert read(0, 72, topic_id)[1] == log_bytes(cluster, tp)


def test_a_batch_in_which_a_lease_ends_is_told_once(cluster, tp, read, monkeypatch):
    """A lease that a quota cuts short may end at any offset."""

    def cut(found, ranges, **options):
        return lease_ranges(found, [each._replace(end=min(each.end, each.start + 7)) for each in ranges], **options)

    monkeypatch.setattr(leased_files, "lease_ranges", cut)
    monkeypatch.delattr(leased_files, "fetch_everything")
    assert read(0, 72)[1] == log_bytes(cluster, tp)


@pytest.mark.parametrize("good", [0, 1, 4])
def test_what_cannot_be_read_is_fetched_from_there_on(cluster, tp, read, monkeypatch, good):
    real = leased_files.leased_batches
    left = [good]

    def damaged(*arguments):
        for batch in real(*arguments):
            if not left[0]:
                raise NotDirect("damaged", "as the test says")
            left[0] -= 1
            yield batch

    monkeypatch.setattr(leased_files, "leased_batches", damaged)
    assert read(0, 72)[1] == log_bytes(cluster, tp)


def test_a_file_that_is_not_the_leaders_is_left_alone(cluster, tp, read, monkeypatch):
    monkeypatch.setattr(segment_files, "read_meta_properties", lambda _: {"cluster.id": "another"})
    assert read(0, 72)[1] == log_bytes(cluster, tp)


def test_offsets_that_are_gone_are_an_error(bootstrap, tp, read):
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_records({tp: 30})
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        read(0, 72)
    assert read(30, 72)[0][0] == 30
