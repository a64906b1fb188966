import tracemalloc

import pytest

from sparklog.record.partitioning import coordinator_partition, murmur2, partition_for

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


@pytest.mark.parametrize(
    ("name", "code"), [("", 0), ("group", 98629247), ("polygenelubricants", -(2**31)), ("x" * 300, -1757771264)]
)
def test_a_coordinator_is_found_by_javas_hash_code(name, code):
    assert coordinator_partition(name, 50) == (0 if code == -(2**31) else abs(code) % 50)


def test_long_names_are_not_kept():
    tracemalloc.start()
    for number in range(20):
        coordinator_partition(f"{number}" + "x" * 32_000, 50)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000
