"""The first design's answers to a fetch, byte by byte: whole, with messages cut short, and damaged."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptRecord
from sparklog.record.legacy.fetch_result import FetchResult, read_result, read_results, write_result, write_results

# The messages "one" and "two" of magic 0 and magic 1 without compression, as Kafka 0.7's ``Message`` writes them.
ONE = bytes.fromhex("00000008007a6c86f16f6e65")
TWO = bytes.fromhex("00000009010011ca8a6674776f")
SINGLE = bytes.fromhex("0000001b0000") + ONE + TWO
EMPTY = bytes.fromhex("000000020000")
REFUSED = bytes.fromhex("000000020001")
MANY = bytes.fromhex("0000002d0000") + SINGLE + REFUSED + EMPTY


def test_an_answer_for_one_partition():
    assert write_result(ONE + TWO) == SINGLE
    result, size = read_result(b"before" + SINGLE + b"behind", 6)
    assert (result.error_code, bytes(result.messages), size) == (0, ONE + TWO, len(SINGLE))
    messages = list(result.iter_messages(base_offset=100))
    assert [(each.offset, bytes(each.value)) for each in messages] == [(100, b"one"), (112, b"two")]
    for each in messages:
        each.validate()


@pytest.mark.parametrize("data", [EMPTY, REFUSED])
def test_an_answer_without_messages(data):
    result, size = read_result(data)
    assert (bytes(result.messages), size) == (b"", len(data))
    assert write_result(b"", result.error_code) == data


def test_an_answer_for_many():
    results, size = read_results(MANY)
    assert size == len(MANY)
    assert [(each.error_code, bytes(each.messages)) for each in results] == [(0, ONE + TWO), (1, b""), (0, b"")]
    assert write_results(results) == MANY


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_a_last_message_that_is_cut_short(cut):
    """As in any answer that was filled up to its size."""
    result, _ = read_result(write_result((ONE + TWO)[:-cut]))
    assert [bytes(each.value) for each in result.iter_messages()] == [b"one"]


@pytest.mark.parametrize("read", [read_result, read_results])
@pytest.mark.parametrize("end", range(len(MANY)))
def test_an_answer_that_is_not_all_there(read, end):
    with pytest.raises(CorruptRecord):
        read(MANY[:end])


@pytest.mark.parametrize("length", [-1, 0, 1, 1 << 30])
def test_a_length_that_cannot_be(length):
    data = length.to_bytes(4, "big", signed=True) + SINGLE[4:]
    with pytest.raises(CorruptRecord, match=f"claims {length} of the"):
        read_result(data)


def test_sets_that_do_not_fill_an_answer():
    with pytest.raises(CorruptRecord):
        read_results(write_result(SINGLE + b"\x00"))


@given(st.lists(st.tuples(st.integers(-1, 100), st.binary(max_size=40)), max_size=5))
def test_what_is_written_is_read(sets):
    results = [FetchResult(code, memoryview(messages)) for code, messages in sets]
    data = write_results(results)
    assert read_results(data) == (results, len(data))


@given(st.binary(max_size=60))
def test_random_bytes(data):
    for read in (read_result, read_results):
        with suppress(CorruptRecord):
            read(data)
