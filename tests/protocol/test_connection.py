"""Both ends of a connection, without a socket."""

import pytest
from protocol.schema_bytes import uvarint

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection, describe_request, frame_response, parse_request
from sparklog.protocol.wire import MOST_TAGS
from sparklog.structs import FileSlice


def unframed(chunks):
    data = b"".join(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return memoryview(data)[4:]


@pytest.mark.parametrize(
    ("api", "version"), [(ApiKey.METADATA, 8), (ApiKey.METADATA, 9), (ApiKey.API_VERSIONS, 3), (ApiKey.PRODUCE, 0)]
)
@pytest.mark.parametrize("client_id", ["", "me", "ümläut"])
def test_a_request_is_split_into_header_and_body(api, version, client_id):
    chunks = ClientConnection(client_id).request(api, version, [b"body ", memoryview(b"of it")])
    request = parse_request(unframed(chunks))
    assert request[:4] == (api, version, 0, client_id)
    assert bytes(request.body) == b"body of it"


def test_a_client_may_have_no_name():
    request = parse_request(memoryview(b"\0\x03\0\x01\0\0\0\x07\xff\xffbody"))
    assert request[:4] == (ApiKey.METADATA, 1, 7, None)
    assert bytes(request.body) == b"body"


def test_tags_of_a_flexible_header_are_passed_over():
    tags = uvarint(1) + uvarint(9) + uvarint(2) + b"??"
    request = parse_request(memoryview(b"\0\x03\0\x0c\0\0\0\x07\0\x01c" + tags + b"body"))
    assert (request.client_id, bytes(request.body)) == ("c", b"body")


def test_a_header_of_more_tags_than_anybody_sends_is_refused_unread():
    header = memoryview(b"\0\x03\0\x0c\0\0\0\x07\0\x01c" + uvarint(MOST_TAGS + 1))
    with pytest.raises(RemoteProtocolError, match="tagged fields"):
        parse_request(header)
    assert describe_request(header) == "a malformed request"


@pytest.mark.parametrize(("api", "version"), [(48, 0), (999, 0), (-1, 0)])
def test_an_api_that_nobody_knows_can_still_be_refused_by_name(api, version):
    header = api.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + b"\0\0\0\x07\0\x01c"
    assert parse_request(memoryview(header + b"???"))[:4] == (api, version, 7, "c")


@pytest.mark.parametrize("version", [-32768, -1, 99, 32767])
def test_any_version_number_can_be_answered(version):
    header = b"\0\x12" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x07\0\x01c\0"
    assert parse_request(memoryview(header))[:4] == (ApiKey.API_VERSIONS, version, 7, "c")


def test_half_a_header_is_refused():
    whole = unframed(ClientConnection("me").request(ApiKey.METADATA, 12, []))
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            parse_request(whole[:size])


def test_a_response_bears_the_header_of_its_version():
    assert b"".join(frame_response(ApiKey.METADATA, 8, 5, [b"x"])) == b"\0\0\0\x05\0\0\0\x05x"
    assert b"".join(frame_response(ApiKey.METADATA, 9, 5, [b"x"])) == b"\0\0\0\x06\0\0\0\x05\0x"
    assert b"".join(frame_response(ApiKey.API_VERSIONS, 3, 5, [b"x"])) == b"\0\0\0\x05\0\0\0\x05x"
    assert b"".join(frame_response(ApiKey.API_VERSIONS, 0, -1, [])) == b"\0\0\0\x04\xff\xff\xff\xff"


def test_file_slices_pass_through_a_response():
    piece = FileSlice(None, 0, 10)
    assert frame_response(ApiKey.FETCH, 4, 1, [piece]) == [b"\0\0\0\x0e\0\0\0\x01", piece]


def answer_to(number, body=b""):
    return memoryview(number.to_bytes(4, "big") + body)


def test_answers_are_matched_in_order():
    client = ClientConnection("me")
    client.request(ApiKey.METADATA, 1, [])
    client.request(ApiKey.PRODUCE, 3, [], expect_response=False)
    client.request(ApiKey.FETCH, 12, [])
    assert client.in_flight == 2
    assert client.response(answer_to(0, b"one"))[:2] == (ApiKey.METADATA, 1)
    api, version, body = client.response(answer_to(2, b"\0two"))
    assert (api, version, bytes(body)) == (ApiKey.FETCH, 12, b"two")
    assert client.in_flight == 0


def test_an_answer_to_another_request_is_refused():
    client = ClientConnection("me")
    client.request(ApiKey.METADATA, 1, [])
    with pytest.raises(RemoteProtocolError, match="response 7 came where 0 was due"):
        client.response(answer_to(7))


def test_an_answer_that_nobody_waits_for_is_refused():
    with pytest.raises(RemoteProtocolError, match="no request waits"):
        ClientConnection("me").response(answer_to(0))


def test_correlation_ids_stay_positive():
    client = ClientConnection("me")
    client._next_id = 0x7FFFFFFF
    for expected in (0x7FFFFFFF, 0):
        assert parse_request(unframed(client.request(ApiKey.METADATA, 1, []))).correlation_id == expected
