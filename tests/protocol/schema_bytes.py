"""Encodes messages straight from their schemas by the rules of the protocol guide: a second opinion, and a corpus.

Every field that a version carries is filled; ``fill`` chooses the numbers and texts.
"""

import struct
from uuid import UUID

_FORMS = {"bool": "?", "int8": "b", "int16": ">h", "int32": ">i", "int64": ">q", "float64": ">d", "bitfield": ">i"}


def uvarint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def covers(versions, version):
    if versions is None or versions == "none":
        return False
    low, _, high = versions.partition("-")
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    return int(low) <= version <= int(high or low)


class SchemaEncoder:
    """One message class of the library, as the bytes that its schema demands."""

    def __init__(self, schema, version, fill):
        self.version = version
        self.flexible = covers(schema.json.get("flexibleVersions"), version)
        self.fields = schema.json["fields"]
        self.fill = fill

    def encode(self):
        return self._structure(self.fields)

    def _structure(self, fields):
        carried = [f for f in fields if covers(f["versions"], self.version)]
        plain = [f for f in carried if not covers(f.get("taggedVersions"), self.version)]
        tail = b"\0" if self.flexible else b""
        return b"".join(self._field(f) for f in plain) + tail

    def _field(self, field):
        kind = field["type"]
        if not kind.startswith("[]"):
            return self._value(kind, field)
        elements = [self._value(kind[2:], field) for _ in range(self.fill.length())]
        count = uvarint(len(elements) + 1) if self.flexible else struct.pack(">i", len(elements))
        return count + b"".join(elements)

    def _value(self, kind, field):
        if "fields" in field:
            there = b"\1" if not field["type"].startswith("[]") and "nullableVersions" in field else b""
            return there + self._structure(field["fields"])
        if kind == "uuid":
            return UUID(int=self.fill.number(127) + 1).bytes
        if kind in _FORMS:
            form = _FORMS[kind]
            return struct.pack(form, self.fill.number(8 * struct.calcsize(form) - 1) if kind != "bool" else True)
        data = self.fill.text().encode()
        if self.flexible:
            return uvarint(len(data) + 1) + data
        return struct.pack(">i" if kind in ("bytes", "records") else ">h", len(data)) + data


class RandomFill:
    """Choices of a ``random.Random``."""

    def __init__(self, source):
        self._source = source

    def length(self):
        return self._source.randrange(1, 4)

    def number(self, bits):
        return self._source.getrandbits(self._source.randrange(1, bits))

    def text(self):
        return "".join(self._source.choice("abcäß漢字🙂 \0") for _ in range(self._source.randrange(0, 40)))
