"""What type checkers read of the messages, against the schemas that the codec reads."""

from pathlib import Path

from sparklog.protocol import message_classes
from sparklog.protocol.message_classes import SCHEMAS
from sparklog.protocol.message_stubs import stub

STUB = Path(message_classes.__file__).with_suffix(".pyi")
MAKE = "python -m sparklog.protocol.message_stubs > src/sparklog/protocol/message_classes.pyi"


def test_the_stub_is_made_of_the_schemas():
    assert STUB.read_text() == stub(), f"stale: {MAKE}"


def test_every_class_stands_in_it_once():
    lines = stub().splitlines()
    for schema in SCHEMAS.values():
        request, response = (each.__name__ for each in schema)
        assert lines.count(f"class {request}(Request[{response}]):") == 1
        assert lines.count(f"class {response}(Response):") == 1


def test_a_field_is_none_where_a_version_may_leave_it_out_or_say_null():
    fields = _fields_of("MetadataRequest")
    assert fields["topics"] == "list[MetadataRequestTopic] | None"  # null in some versions
    assert fields["allow_auto_topic_creation"] == "bool"
    assert fields["name"] == "str | None"
    assert fields["topic_id"] == "UUID | None"  # the codec gives None for an id of zeros
    assert _fields_of("InitProducerIdRequest")["transactional_id"] == "str | None"
    assert _fields_of("ConsumerGroupHeartbeatResponse")["assignment"] == "Assignment | None"


def test_what_a_constructor_takes_is_wider_than_what_is_read():
    given = _given_to("DescribeGroupsResponse")
    assert given["members"] == "Sequence[DescribedGroupMember] = ..."
    assert given["member_metadata"] == "bytes | bytearray | memoryview = ..."
    assert given["authorized_operations"] == "Iterable[int] | None = ..."


def test_a_structure_without_a_default_must_be_given():
    assert _given_to("ConsumerGroupDescribeResponse")["assignment"] == "Assignment"


def _class(name):
    """The lines of a class, without their indents."""
    lines = stub().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"class {name}("))
    end = next((number for number in range(start + 1, len(lines)) if lines[number].startswith("class ")), len(lines))
    return [line.strip() for line in lines[start:end]]


def _fields_of(name):
    return dict(line.split(": ", 1) for line in _class(name) if ": " in line and not line.endswith((",", "...")))


def _given_to(name):
    return dict(line.removesuffix(",").split(": ", 1) for line in _class(name) if ": " in line and line.endswith(","))
