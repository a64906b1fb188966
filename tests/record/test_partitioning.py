import pytest

from sparklog.record.partitioning import murmur2, partition_for

pytestmark = pytest.mark.usefixtures("codec")

# Java's signed results for the same keys, from Kafka's own unit test of murmur2.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_murmur2(key):
    assert murmur2(key) == murmur2(memoryview(key)) == KNOWN[key] % 2**32


def test_partition_is_not_negative():
    assert partition_for(b"21", 16) == (-973932308 & 0x7FFFFFFF) % 16
    assert {partition_for(b"%d" % n, 3) for n in range(100)} == {0, 1, 2}
