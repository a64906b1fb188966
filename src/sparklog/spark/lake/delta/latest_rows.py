"""The last row of each key, of rows that come in the order of their offsets: what an upsert applies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_FOLD_BYTES = 32 << 20
"""So much waits, at least, before rows that others have replaced are dropped."""


class LatestRows:
    """Takes rows whose ``key`` is not null. Its memory is some four times ``limit_bytes`` at most."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._fold_bytes = min(_FOLD_BYTES, limit_bytes)
        self._begin()

    def _begin(self) -> None:
        self._kept: list[pa.RecordBatch] = []
        self._kept_bytes = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._pending.append(rows)
        self._pending_bytes += rows.nbytes
        if self._pending_bytes >= max(self._kept_bytes, self._fold_bytes):
            self._fold()

    @property
    def is_full(self) -> bool:
        """There are so many keys that they are to be taken now."""
        return self._kept_bytes >= self._limit_bytes

    def take(self) -> pa.Table | None:
        """The last row of each key, in the order of the offsets; None where no row came. It is empty again then."""
        self._fold()
        kept = self._kept
        self._begin()
        return pa.Table.from_batches(kept) if kept else None

    def _fold(self) -> None:
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._kept + self._pending)
        self._kept = rows.take(pa.array(last_of_each(rows.column("key")))).to_batches()
        self._kept_bytes = sum(each.nbytes for each in self._kept)
        self._pending, self._pending_bytes = [], 0


def last_of_each(keys: pa.ChunkedArray) -> np.ndarray:
    """The number of the last row of each key, ascending. No key is null."""
    codes = np.asarray(keys.combine_chunks().dictionary_encode().indices)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of several values for one place NumPy keeps the last
    last.sort()
    return last
