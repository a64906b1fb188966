from sparklog.broker.apis.cluster import api_versions
from sparklog.broker.registry import HANDLERS, OFFERED, offered
from sparklog.config.protocol_version import NEWEST, parse_protocol_version
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey

BESIDE_KAFKA = offered(parse_protocol_version("3.9"))


def test_beside_kafka_clients_are_offered_what_kafka_serves_too():
    assert BESIDE_KAFKA[ApiKey.END_TXN][-1] == 4
    assert BESIDE_KAFKA[ApiKey.PRODUCE][-1] == 11
    assert ApiKey.CONSUMER_GROUP_HEARTBEAT not in BESIDE_KAFKA
    assert offered(NEWEST) == OFFERED


def test_beside_kafka_no_feature_is_in_force():
    assert api_versions.response(BESIDE_KAFKA, ErrorCode.NONE, 4).finalized_features == []
    assert len(api_versions.response(OFFERED, ErrorCode.NONE, 4).finalized_features) == 2


def test_what_waits_for_others_holds_up_nothing_that_is_asked_behind_it():
    """What members of a group wait for, readers, transactions of one coordinator, segments of several partitions, logs
    that are cleaned, looks at several brokers: all of these are asked for side by side on one connection.
    """
    assert {each.api for each in HANDLERS.values() if each.waits_for_others} == {
        ApiKey.FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ADOPT_SEGMENTS,
        ApiKey.COMPACT_PARTITIONS,
        ApiKey.PROBE_BROKER,
    }
