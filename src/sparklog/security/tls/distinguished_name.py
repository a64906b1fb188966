"""The name in a certificate as Java prints it (``X500Principal.getName()``, RFC 2253): rules and lists expect that.

What comes last in the certificate comes first. Attributes that RFC 2253 does not name are written by their numbers,
with the value's encoding in hexadecimal. Values that are no text are written so too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sparklog.errors import AuthenticationFailed

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. To a JVM UniversalString is no text."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = " \r"
_VERSION: Final = 0xA0
"""The explicit tag of the optional first field of a certificate."""


class _Element(NamedTuple):
    """One value of DER: its tag, what it holds, and all its bytes."""

    tag: int
    content: memoryview
    whole: memoryview


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises AuthenticationFailed for bytes that are none."""
    try:
        (signed,) = list(_elements(memoryview(certificate)))[:1]
        fields = list(_elements(next(_elements(signed.content)).content))
        subject = fields[5 if fields[0].tag == _VERSION else 4]
        relative_names = list(_elements(subject.content))
        return ",".join(_relative_name(each) for each in reversed(relative_names))
    except (ValueError, IndexError, StopIteration) as error:
        raise AuthenticationFailed("the peer's certificate has a name that cannot be read") from error


def _elements(data: memoryview) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start, (size, begin) = position, _length(data, position + 1)
        position = begin + size
        if position > len(data):
            raise ValueError("an element ends behind its parent")
        yield _Element(data[start], data[begin:position], data[start:position])


def _length(data: memoryview, position: int) -> tuple[int, int]:
    """The length at a position, and where what it is of begins."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    end = position + 1 + (first & 0x7F)
    return int.from_bytes(data[position + 1 : end], "big"), end


def _relative_name(element: _Element) -> str:
    return "+".join(_attribute(each) for each in _elements(element.content))


def _attribute(element: _Element) -> str:
    kind, value = _elements(element.content)
    number = _dotted(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(str(value.content, 'utf-8', 'replace'))}"


def _dotted(content: memoryview) -> str:
    """An object identifier in figures."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    top = min(numbers[0] // 40, 2)
    return ".".join(map(str, [top, numbers[0] - 40 * top, *numbers[1:]]))


def _escaped(text: str) -> str:
    inner = text.strip(_BLANKS)
    lead = text[: len(text) - len(text.lstrip(_BLANKS))]
    trail = text[len(lead) + len(inner) :]
    return _each_escaped(lead) + "".join(map(_escaped_letter, inner)) + _each_escaped(trail)


def _each_escaped(blanks: str) -> str:
    return "".join(f"\\{each}" for each in blanks)


def _escaped_letter(letter: str) -> str:
    if letter == "\0":
        return "\\00"
    return f"\\{letter}" if letter in _ESCAPED else letter
