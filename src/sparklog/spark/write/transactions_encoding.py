"""A compact encoding of many transactions: the decision of a batch may name hundreds of thousands.

It is delta encoding by column. The ids of one run differ in four small numbers, and brokers give out producer ids in
order. So the transactions of a run are written by columns, each number as its difference from the one before;
compressed, a transaction takes two or three bytes. An id that no task attempt made is written as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.spark.write.attempt_names import AttemptName

_COLUMNS = ("partition", "attempt", "slot", "turn", "producer", "epoch")


def encode_transactions(transactions: Iterable[PreparedTransaction]) -> list[dict[str, Any]]:
    """JSON values: an object for each run, and one for ids that no task attempt made. The order does not matter."""
    runs: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    others = []
    for each in transactions:
        name = AttemptName.parse(each.transactional_id)
        if name is None or name.transactional_id != each.transactional_id:
            others.append(list(each))
        else:
            runs.setdefault((name.scope, name.run), []).append((*name[2:], each.producer_id, each.epoch))
    encoded: list[dict[str, Any]] = [
        {"scope": scope, "run": run, **{name: _deltas(column) for name, column in zip(_COLUMNS, columns, strict=True)}}
        for (scope, run), rows in sorted(runs.items())
        for columns in [zip(*sorted(rows), strict=True)]
    ]
    return [*encoded, {"others": others}] if others else encoded


def decode_transactions(encoded: Iterable[dict[str, Any]]) -> Iterator[PreparedTransaction]:
    """The transactions that were encoded. Raises KeyError, TypeError or ValueError for any other value."""
    for group in encoded:
        if "others" in group:
            yield from (PreparedTransaction(*each) for each in group["others"])
            continue
        columns = [accumulate(group[name]) for name in _COLUMNS]
        for partition, attempt, slot, turn, producer, epoch in zip(*columns, strict=True):
            name = AttemptName(group["scope"], group["run"], partition, attempt, slot, turn)
            yield PreparedTransaction(name.transactional_id, producer, epoch)


def _deltas(column: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise((0, *column))]
