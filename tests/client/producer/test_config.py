import pytest

from sparklog.client.producer.config import ProducerConfig
from sparklog.errors import ConfigError


def _of(**more):
    return ProducerConfig.of({"bootstrap.servers": "h:1"}, **more)


def test_by_kafkas_names_with_dots_or_underscores():
    config = ProducerConfig.of({"bootstrap.servers": "h:1", "linger.ms": 7}, batch_size=100, enable_idempotence=True)
    assert (config.linger_ms, config.batch_size, config.enable_idempotence) == (7, 100, True)


def test_idempotence_is_on_unless_something_rules_it_out(caplog):
    assert _of().enable_idempotence
    for setting in ({"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}):
        assert not _of(**setting).enable_idempotence


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"enable_idempotence": True, "acks": 1}, "enable.idempotence=true needs acks=all, not 1"),
        ({"transactional_id": "x", "retries": 0}, "transactional.id needs retries of more than 0"),
        ({"transactional_id": "x", "max_in_flight_requests_per_connection": 9}, "at most 5, not 9"),
        ({"transactional_id": "x", "enable_idempotence": False}, "remove one of them"),
        ({"transaction_two_phase_commit_enable": True}, "set transactional.id too"),
        (
            {"transactional_id": "x", "transaction_two_phase_commit_enable": True, "transaction_timeout_ms": 5},
            "remove transaction.timeout.ms",
        ),
        ({"delivery_timeout_ms": 100}, "make it at least linger.ms \\+ request.timeout.ms, that is 30005"),
        ({"linger_ms": -1}, "linger.ms"),
        ({"linger_ms": "soon"}, "linger.ms"),
    ],
)
def test_contradictions_say_what_to_do(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        _of(**settings)


def test_the_default_time_for_delivery_grows_with_what_it_must_hold():
    assert _of(linger_ms=200_000).delivery_timeout_ms == 230_000
