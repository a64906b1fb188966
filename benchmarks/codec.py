"""The record codec on one core: decoding to and encoding from Arrow, by record size and compression.

``python benchmarks/codec.py [--json PATH]`` prints a line a measurement. ``records_per_second`` and
``mb_per_second`` count uncompressed batch bytes (MB is 10**6); each is the best of several passes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparklog.record import _impl
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import COLUMNS, HEADERS_TYPE, ColumnarDecoder, encode_columns
from sparklog.record.compression import CompressionType

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_SIZES = (100, 1000)
BATCH_BYTES = 256 * 1024
NOW_MS = 1_700_000_000_000
FLUSH_BYTES = 2 * 1024 * 1024
DECODED = [name for name in COLUMNS if name != "headers"]
PASSES = 5


def run(total_bytes: int = 32_000_000) -> list[dict[str, Any]]:
    """Every measurement, as (operation, record_size, compression, headers, records_per_second, mb_per_second)."""
    results = []
    for size in RECORD_SIZES:
        for compression in CompressionType:
            share = total_bytes if compression is CompressionType.NONE else total_bytes // 4
            results += _measure(size, compression, share // size, headers=False)
        results += _measure(size, CompressionType.NONE, total_bytes // size, headers=True)
    return results


def _measure(size: int, compression: CompressionType, rows: int, *, headers: bool) -> list[dict[str, Any]]:
    key, value, header = _columns(size, rows, headers)
    stamps = pa.array(range(NOW_MS, NOW_MS + rows), pa.int64())
    settings: dict[str, Any] = {"compression": compression, "max_batch_bytes": BATCH_BYTES}
    batches = encode_columns(key, value, header, stamps, now_ms=NOW_MS, **settings)
    total = sum(batch.uncompressed_size for batch in batches)
    views = [RecordBatch(batch.data) for batch in batches]
    names = list(COLUMNS) if headers else DECODED
    actions: dict[str, Callable[[], object]] = {
        "decode": lambda: _decode(views, names),
        "encode": lambda: encode_columns(key, value, header, stamps, now_ms=NOW_MS, **settings),
    }
    measured = []
    for operation, action in actions.items():
        seconds = min(_timed(action) for _ in range(PASSES))
        measured.append(
            {
                "operation": operation,
                "record_size": size,
                "compression": compression.name.lower(),
                "headers": headers,
                "implementation": _impl.codec.name,
                "records_per_second": round(rows / seconds),
                "mb_per_second": round(total / seconds / 1e6),
            }
        )
    return measured


def _columns(size: int, rows: int, headers: bool) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    """Keys of 12 bytes, values that compress two or three times, and two small headers where they are wanted."""
    chance = random.Random(size)
    words = [bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(3000)]
    text = b" ".join(chance.choices(words, k=200_000))
    length = size - 24
    starts = [chance.randrange(len(text) - length) for _ in range(rows)]
    key = pa.array([b"key-%08d" % (n % 50_000) for n in range(rows)], pa.binary())
    value = pa.array([text[start : start + length] for start in starts], pa.binary())
    pair = [{"key": "trace", "value": b"0123456789abcdef"}, {"key": "kind", "value": b"order"}]
    return key, value, pa.array([pair] * rows, HEADERS_TYPE) if headers else None


def _decode(batches: list[RecordBatch], names: list[str]) -> int:
    decoder = ColumnarDecoder(names, timestamp_unit="us")
    rows = 0
    for batch in batches:
        rows += decoder.append(batch)
        if decoder.nbytes >= FLUSH_BYTES:
            decoder.finish()
    decoder.finish()
    return rows


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    path = parser.parse_args().json
    results = run()
    for row in results:
        kind = row["compression"] + (" + headers" if row["headers"] else "")
        sys.stdout.write(
            f"{row['operation']}  {row['record_size']:>5} B  {kind:<15}"
            f"{row['records_per_second'] / 1e6:>8.2f} M records/s {row['mb_per_second']:>6} MB/s\n"
        )
    if path:
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
