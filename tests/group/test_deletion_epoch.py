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
    second.forgotten(frozenset({A}))
    third = second.end(frozenset({B}))
    third.forgotten(frozenset({B}))
    assert first.deleted_since({A, B, C}) == {A, B}
    assert second.deleted_since({A, B, C}) == {B}, "another of the name of the first"
    assert third.deleted_since({A, B, C}) == set()
    assert first.deleted_since({C}) == set()


def test_until_all_of_it_is_forgotten_nothing_is_to_be_kept_under_the_name() -> None:
    first = DeletionEpoch()
    second = first.end(frozenset({A}))
    assert second.deleted_since({A, C}) == {A}, "others have the name since, of which nothing was deleted"
    third = second.end(frozenset({A, B}))
    third.forgotten(frozenset({A}))
    assert third.deleted_since({A, B, C}) == {A, B}, "once of two deletions"
    third.forgotten(frozenset({A, B}))
    assert third.deleted_since({A, B, C}) == set()


def test_epochs_that_nobody_remembers_are_let_go() -> None:
    epochs = [DeletionEpoch()]
    for _ in range(3):
        epochs.append(epochs[-1].end(frozenset({A})))
    for before, after in pairwise(epochs):
        assert before not in gc.get_referents(after)
