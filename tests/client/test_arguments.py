import pytest

from sparklog.client.arguments import check_offsets
from sparklog.client.offsets_to_commit import OffsetAndMetadata
from sparklog.errors import LocalProtocolError
from sparklog.structs import TopicPartition

T0 = TopicPartition("t", 0)


def test_offsets_are_taken_bare_or_whole():
    whole = OffsetAndMetadata(7, 2, "note")
    assert check_offsets({T0: 0}) == {T0: OffsetAndMetadata(0)}
    assert check_offsets({T0: whole}) == {T0: whole}


@pytest.mark.parametrize("offset", [-5, OffsetAndMetadata(-1)])
def test_a_negative_offset_is_not_committed(offset):
    with pytest.raises(LocalProtocolError, match="partition t-0"):
        check_offsets({T0: offset})


@pytest.mark.parametrize(
    "offsets", [5, {T0: 1.0}, {T0: True}, {T0: "1"}, {("t", 0): 1}, {"t": 5}, {TopicPartition("t", "0"): 1},
                {TopicPartition(b"t", 0): 1}, {T0: OffsetAndMetadata(1, metadata=None)}],
)  # fmt: skip
def test_what_are_no_offsets_is_told_so(offsets):
    with pytest.raises(TypeError):
        check_offsets(offsets)
