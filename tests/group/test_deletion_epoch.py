"""Epochs between deletions: what has been deleted since."""

from __future__ import annotations

import gc
from itertools import pairwise

from sparklog.group.deletion_epoch import DeletionEpoch
from sparklog.structs import TopicPartition

A, B, C = (TopicPartition(name, 0) for name in "abc")


def test_what_was_deleted_since_an_epoch() -> None:
    first = DeletionEpoch()
    second = first.end(frozenset({A}))
    third = second.end(frozenset({B}))
    assert first.deleted_since({A, B, C}) == {A, B}
    assert second.deleted_since({A, B, C}) == {B}, "another of the name of the first"
    assert third.deleted_since({A, B, C}) == set()
    assert first.deleted_since({C}) == set()


def test_epochs_that_nobody_remembers_are_let_go() -> None:
    epochs = [DeletionEpoch()]
    for _ in range(3):
        epochs.append(epochs[-1].end(frozenset({A})))
    for before, after in pairwise(epochs):
        assert before not in gc.get_referents(after)
