"""The bytes of a set of keys."""

import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.compaction import erased_keys
from sparklog.compaction.erased_keys import digest_of, pack_keys, unpack_keys
from sparklog.errors import CorruptRecord, LocalProtocolError

KEYS = st.lists(st.binary(max_size=20), min_size=1, max_size=10)


@given(KEYS)
def test_a_set_of_keys_has_one_form(keys):
    packed = pack_keys(keys)
    assert list(unpack_keys(packed)) == sorted(set(keys))
    assert pack_keys([*reversed(keys), *keys]) == packed
    assert digest_of(packed) == hashlib.sha256(packed).digest()


def test_the_form_is_the_documented_one():
    assert pack_keys([b"bb", b"a", b""]) == b"\0\0\0\0" + b"\0\0\0\1a" + b"\0\0\0\2bb"


def test_no_keys_and_too_many_are_refused(monkeypatch):
    with pytest.raises(LocalProtocolError, match="no key"):
        pack_keys([])
    monkeypatch.setattr(erased_keys, "MOST_BYTES", 9)
    assert pack_keys([b"12345"])
    with pytest.raises(LocalProtocolError, match=r"1 keys take 10 bytes.*erase in parts"):
        pack_keys([b"123456"])


@given(KEYS, st.data())
def test_bytes_that_are_no_keys_are_refused(keys, data):
    packed = pack_keys(keys)
    cut = data.draw(st.integers(1, len(packed)))
    with suppress(CorruptRecord):
        found = list(unpack_keys(packed[:-cut]))
        assert found == sorted(set(keys))[: len(found)], "it ends behind a key"
    with pytest.raises(CorruptRecord):
        list(unpack_keys(packed + packed))
