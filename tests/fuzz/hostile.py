"""Requests that no client should send: right in form with wrong values, wrong in form, and no requests at all."""

import struct

from protocol.schema_bytes import SchemaEncoder, uvarint

NULL_OR_HUGE = 0.03
"""How often a length is null or far too large, so that most messages are read to their end."""
TEXTS = (
    "",
    "victim",
    "victim",
    "no such",
    "..",
    "__consumer_offsets",
    "x" * 249,
    "x" * 32767,
    "漢字🙂",
    "a\0b",
    "7",
    "-1",
)


class HostileFill:
    """Numbers at the edges of their type, and names that mean something or nothing."""

    def __init__(self, chance):
        self.chance = chance

    def length(self):
        return self.chance.choice((0, 1, 1, 1, 2, 3))

    def number(self, bits):
        return self.chance.choice((0, 0, 1, 1, 2, 3, 7, (1 << bits) - 1))

    def text(self):
        return self.chance.choice(TEXTS)


class HostileEncoder(SchemaEncoder):
    """As its schema demands, except for signs, nulls and lengths."""

    def _field(self, field):
        if field["type"].startswith("[]") and self._strikes():
            return self._false_length(4)
        return super()._field(field)

    def _value(self, kind, field):
        if "fields" not in field and kind in ("string", "bytes", "records") and self._strikes():
            return self._false_length(2 if kind == "string" else 4)
        value = super()._value(kind, field)
        if kind.startswith("int") and self.fill.chance.random() < 0.3:
            return bytes(byte ^ 0xFF for byte in value)  # -1 for 0, the least for the greatest
        return value

    def _strikes(self):
        return self.fill.chance.random() < NULL_OR_HUGE

    def _false_length(self, width):
        length = self.fill.chance.choice((-1, -1, -2, 1000, (1 << (8 * width - 1)) - 1))
        if self.flexible:
            return uvarint((length + 1) & 0xFFFFFFFF)
        return length.to_bytes(width, "big", signed=True)


def framed(data):
    """Behind its length."""
    return struct.pack(">i", len(data)) + data


def mutated(data, chance):
    """``data`` with a few bytes changed, lost, doubled or cut off."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        position = chance.randrange(len(out) + 1)
        match chance.randrange(4):
            case 0:
                out[position : position + 1] = chance.randbytes(1)
            case 1:
                out[position : position + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"))
            case 2:
                del out[position : position + chance.randrange(1, 9)]
            case _:
                out[position:position] = out[: chance.randrange(40)]
    return bytes(out)
