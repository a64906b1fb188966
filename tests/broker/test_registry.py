from sparklog.broker.apis.cluster import api_versions
from sparklog.broker.registry import OFFERED, offered
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
