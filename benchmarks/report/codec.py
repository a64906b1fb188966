"""``benchmarks.codec``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section

RECORDS_AIM = 10_000_000
RATE_AIM = 2000
_TEXT = """\
Batches to Arrow columns and back, one core. MB are of uncompressed batch bytes; each figure is the best of several
passes. How it is measured: `benchmarks/codec.py`."""


def codec(rows: Rows) -> Section:
    """``benchmarks.codec``."""

    def rate(operation: str, size: int, figure: str) -> float:
        return max(
            float(row[figure])
            for row in rows
            if (row["operation"], row["record_size"], row["compression"]) == (operation, size, "none")
            and not row["headers"]
        )

    aims = []
    for operation in ("decode", "encode"):
        got = rate(operation, 100, "records_per_second")
        wanted = f"{operation} 10 M records/s of 100 B a core, uncompressed"
        aims.append(Aim(wanted, f"{got / 1e6:.1f} M", got >= RECORDS_AIM))
    got = rate("decode", 1000, "mb_per_second")
    aims.append(Aim("decode 2 GB/s of 1 KB records a core, uncompressed", f"{got / 1000:.1f} GB/s", got >= RATE_AIM))
    return Section(
        "Record codec",
        _TEXT,
        ["", "M records/s", "MB/s"],
        [
            [
                f"{row['operation']}, {row['record_size']} B, {row['compression']}" + ", headers" * row["headers"],
                f"{row['records_per_second'] / 1e6:.2f}",
                f"{row['mb_per_second']:,}",
            ]
            for row in rows
        ],
        aims,
    )
