import asyncio
import json
import os
import re
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.consumer.record import ConsumerRecord
from sparklog.errors import RegistryUnavailable
from sparklog.registry import AvroSerializer, SchemaRegistry, ValueDecoder
from sparklog.testing.clock import ManualClock
from sparklog.testing.registry import schema_registry
from sparklog.web.apis.records import _told
from sparklog.web.decoding import AUTO, Decoding, SchemaDecoder, indented

DECODING = Decoding()


def shown(data, form=AUTO, most=1000):
    return DECODING.shown(data, form, most, topic="t")


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (b"", "utf-8", ""),
        (b'{"a": 1e400, "b": 12345678901234567890}', "json", '{"a": 1e400, "b": 12345678901234567890}'),
        (b"[" * 100_000, "utf-8", "[" * 1000),
        (b'{"a": NaN}', "utf-8", '{"a": NaN}'),
        (b"42", "utf-8", "42"),
        ("Grüße".encode(), "utf-8", "Grüße"),
        (b"\xff\x00", "hex", "ff 00"),
        (b"\xed\xa0\x80", "hex", "ed a0 80"),
        (b"<b>&amp;", "utf-8", "<b>&amp;"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data, form, text):
    found = shown(data)
    assert (found.form, found.text, found.size) == (form, text, len(data))


def test_null_is_no_text():
    assert shown(None) is None


def test_a_visitor_chooses_but_gets_no_replacement_characters():
    assert shown(b'{"a":1}', "hex").text == "7b 22 61 22 3a 31 7d"
    assert shown(b"\xff", "utf-8").form == "hex"
    assert shown(b"\xff", "json").form == "hex"


def test_what_is_cut_says_so():
    assert not shown(b"x" * 1000).is_cut
    found = shown(b"x" * 1001)
    assert (found.is_cut, len(found.text), found.size) == (True, 1000, 1001)
    found = shown(b"\xff" * 334)
    assert (found.is_cut, found.text, found.size) == (True, " ".join(["ff"] * 333), 334)
    assert not shown(b"\xff" * 333).is_cut


def test_another_decoder_is_asked_first():
    class Backwards:
        name = "backwards"
        is_json = False

        def decode(self, data, *, is_key, topic):
            return data.decode()[::-1] if is_key and topic == "t" else None

    decoding = Decoding([Backwards()])
    assert decoding.names == (AUTO, "backwards", "json", "utf-8", "hex")
    assert decoding.shown(b"abc", AUTO, 10, topic="t", is_key=True).text == "cba"
    assert decoding.shown(b"abc", AUTO, 10, topic="t").form == "utf-8"


@pytest.fixture
def trip():
    """The bytes of a value with the id of its schema, a decoding that asks its registry, and that registry."""
    pytest.importorskip("fastavro")
    with schema_registry() as (url, registry):
        schema = {"type": "record", "name": "Trip", "fields": [{"name": "place", "type": "string"}]}
        data = AvroSerializer(SchemaRegistry(schema_registry_url=url), schema).serialize("t", {"place": "Zug"})
        yield data, Decoding([SchemaDecoder(ValueDecoder(SchemaRegistry(schema_registry_url=url)))]), registry


def test_values_of_a_registry_are_json(trip):
    data, decoding, _ = trip
    found = decoding.shown(data, AUTO, 1000, topic="t")
    assert (found.form, found.text) == ("schema", '{"place": "Zug"}')
    assert found.indented(decoding).text == '{\n  "place": "Zug"\n}'
    assert decoding.shown(data, "hex", 1000, topic="t").text == data.hex(" ")


def test_what_is_no_value_of_the_registry_is_shown_as_what_it_is(trip):
    data, decoding, registry = trip
    assert decoding.shown(b'{"a": 1}', AUTO, 1000, topic="t").form == "json"
    assert decoding.shown(b"\0\0\0\0\x63\xff", AUTO, 1000, topic="t").form == "hex"
    registry.user = "ann:secret"  # it refuses from now on
    assert decoding.shown(data, AUTO, 1000, topic="t").form == "utf-8"


def test_a_registry_that_does_not_answer_is_left_alone_for_a_while():
    """Or each of a stranger's records, with another id, would keep the page waiting."""
    clock, asked = ManualClock(), []

    class Silent:
        def decode(self, data):
            asked.append(data)
            raise RegistryUnavailable("it says nothing")

    decoding = Decoding([SchemaDecoder(Silent(), clock)])
    for number in range(5):
        assert decoding.shown(b"\0\0\0\0%d\xff" % number, AUTO, 100, topic="t").form == "hex"
    assert len(asked) == 1
    clock.advance(30.0)
    decoding.shown(b"\0\0\0\0\1\xff", AUTO, 100, topic="t")
    assert len(asked) == 2


def test_a_registry_that_is_waited_for_leaves_threads_to_everybody_else():
    """A broker's name is looked up on a thread of the loop's own."""
    answered = threading.Event()

    class Frozen:
        def decode(self, data):
            answered.wait()
            raise RegistryUnavailable("it says nothing")

    async def main():
        decoding = Decoding([SchemaDecoder(Frozen())])
        record = ConsumerRecord("t", 0, 0, 0, 0, None, b"\0\0\0\0\1\xff", (), 0)
        asked = [asyncio.ensure_future(_told([record], decoding, AUTO)) for _ in range(2 * (os.cpu_count() or 1) + 64)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(20):
                assert await asyncio.get_running_loop().getaddrinfo("localhost", 1)
        finally:
            answered.set()
        assert {told["value"]["form"] for (told,) in await asyncio.gather(*asked)} == {"hex"}
        decoding.close()

    asyncio.run(main())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=40)
@given(VALUES.filter(lambda each: isinstance(each, list | dict)), st.booleans())
def test_indenting_changes_no_token(value, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii)
    told = indented(text)
    assert json.loads(told) == value
    tokens = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]', re.DOTALL)
    assert tokens.findall(told) == tokens.findall(text)


def test_numbers_keep_their_digits():
    assert indented('{"a":[1.0,1e5,-0],"b":{},"c":[]}') == (
        '{\n  "a": [\n    1.0,\n    1e5,\n    -0\n  ],\n  "b": {},\n  "c": []\n}'
    )


def test_deep_members_are_not_moved_to_the_right_without_bound():
    text = "[" * 400 + "1," * 20_000 + "1" + "]" * 400
    assert indented(text) == text
