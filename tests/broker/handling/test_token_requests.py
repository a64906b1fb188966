"""By which connections delegation tokens are asked for, and what a client is told of failures."""

from types import SimpleNamespace

import pytest
from broker.security.token_store import ALICE, caller

from sparklog.broker.context import ApiRequest
from sparklog.broker.handling.token_requests import check_connection, enabled, told
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ApiError, CoordinationError, ErrorCode, MalformedZnode
from sparklog.security.principal import ANONYMOUS

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = (
    SecurityProtocol[each] for each in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
)


def request_of(by):
    return ApiRequest(0, 0, "c", by, None)


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (caller(ALICE, PLAINTEXT), "SASL"),
        (caller(ANONYMOUS, PLAINTEXT), "SASL"),
        (caller(ANONYMOUS, SSL), "certificate"),
        (caller(ALICE, SASL_SSL, "id"), "authenticated by a delegation token"),
        (caller(ALICE, SASL_PLAINTEXT, "id"), "authenticated by a delegation token"),
    ],
)
def test_who_has_shown_no_credential_of_its_own_is_refused(by, reason):
    with pytest.raises(ApiError, match=reason) as refused:
        check_connection(request_of(by))
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("protocol", [SSL, SASL_PLAINTEXT, SASL_SSL])
def test_who_has_is_not(protocol):
    check_connection(request_of(caller(ALICE, protocol)))


def test_without_a_key_tokens_are_disabled():
    with pytest.raises(ApiError, match=r"delegation\.token\.secret\.key") as refused:
        enabled(SimpleNamespace(tokens=None))
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (MalformedZnode("znode /x"), ErrorCode.INVALID_REQUEST),
        (CoordinationError("lost"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_failures_of_zookeeper_are_told(failure, code):
    with pytest.raises(ApiError) as refused, told():
        raise failure
    assert refused.value.code is code
