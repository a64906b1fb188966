"""SipHash-2-4 with 128 bits of output (Aumasson, Bernstein): a keyed hash of which nobody can make two keys collide."""

from __future__ import annotations

_MASK = 2**64 - 1
_WORD = 8


def siphash128(key: bytes, data: bytes) -> bytes:
    """The hash of ``data`` under ``key``, which is 16 bytes long."""
    k0, k1 = int.from_bytes(key[:_WORD], "little"), int.from_bytes(key[_WORD:], "little")
    state = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    whole = len(data) - len(data) % _WORD
    words = [int.from_bytes(data[at : at + _WORD], "little") for at in range(0, whole, _WORD)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56)
    for word in words:
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xEE
    low = _finish(state)
    state[1] ^= 0xDD
    return low + _finish(state)


def _finish(state: list[int]) -> bytes:
    _rounds(state, 4)
    return (state[0] ^ state[1] ^ state[2] ^ state[3]).to_bytes(_WORD, "little")


def _rounds(state: list[int], count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a = a + b & _MASK
        b = _rotated(b, 13) ^ a
        a = _rotated(a, 32)
        c = c + d & _MASK
        d = _rotated(d, 16) ^ c
        a = a + d & _MASK
        d = _rotated(d, 21) ^ a
        c = c + b & _MASK
        b = _rotated(b, 17) ^ c
        c = _rotated(c, 32)
    state[:] = a, b, c, d


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK
