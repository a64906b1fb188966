"""The classes of the messages: where each comes from, and by which names."""

import pytest
from kafka.protocol import metadata

from sparklog.protocol import message_classes, messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.message_classes import SCHEMAS


@pytest.mark.parametrize("api", ApiKey, ids=lambda api: api.name)
def test_every_api_has_the_messages_of_its_name_and_number(api):
    request, response = SCHEMAS[api]
    assert (api, api) == (request.API_KEY, response.API_KEY)
    assert f"{api.name.replace('_', '')}REQUEST" == request.__name__.upper()
    for each in (request, response):
        assert getattr(messages, each.__name__) is getattr(message_classes, each.__name__) is each


def test_they_are_the_librarys_where_it_has_them():
    assert SCHEMAS[ApiKey.METADATA].request is metadata.MetadataRequest


def test_our_own_schemas_come_first():
    assert SCHEMAS[ApiKey.LEASE_SEGMENTS].request.__module__ == message_classes.__name__
    assert SCHEMAS[ApiKey.LEADER_AND_ISR].response.__module__ == message_classes.__name__
