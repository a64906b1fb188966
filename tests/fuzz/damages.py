"""Ways in which a disk spoils a file, chosen by chance."""


def spoiled(data, chance):
    """``data`` with one to three of: a bit flipped, a range zeroed, scrambled or doubled, its end cut off or longer."""
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        position = chance.randrange(len(out) + 1)
        size = chance.choice((1, 4, 8, 34, 61, 512))
        match chance.randrange(7):
            case 0 | 1:
                if position < len(out):
                    out[position] ^= 1 << chance.randrange(8)
            case 2:
                out[position : position + size] = bytes(len(out[position : position + size]))
            case 3:
                out[position : position + size] = chance.randbytes(len(out[position : position + size]))
            case 4:
                out[position:position] = out[position : position + size]
            case 5:
                del out[position:]
            case _:
                out += chance.choice((bytes(size), chance.randbytes(size), b"\2" * size))
    return bytes(out)


def arbitrary(chance):
    """Bytes that nobody wrote."""
    size = chance.choice((0, 1, 7, 12, 61, 200, 5000))
    return chance.choice((chance.randbytes, bytes, lambda n: b"\2" * n, lambda n: b"0\n1\nt 0 5\n"[:n]))(size)
