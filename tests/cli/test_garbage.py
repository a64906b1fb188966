"""Full collections of a process that holds much: what they look at, and what they still free."""

import gc
import weakref
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

import pytest

from sparklog.cli.garbage import ShortCollections, private_bytes

MANY = 100_000


class Node:
    """One that refers to itself, so that only a collection frees it."""

    def __init__(self):
        self.me = self


@pytest.fixture
def collections():
    with ShortCollections():
        yield


def looked_at():
    return {id(each) for each in gc.get_objects()}


def test_a_collection_does_not_look_again_at_what_the_last_one_left(collections):
    kept = [[] for _ in range(1000)]
    assert {id(each) for each in kept} <= looked_at()
    gc.collect()
    assert looked_at().isdisjoint(id(each) for each in kept)


def test_a_full_collection_comes_before_there_is_much_that_is_new(collections):
    """85,000 objects and more, of each large request, took 20 ms."""
    sizes = []

    def on_collection(phase, info):
        if phase == "start" and info["generation"] == 2:
            sizes.append(len(gc.get_objects()))

    gc.collect()
    gc.callbacks.append(on_collection)
    kept = [[] for _ in range(3 * MANY)]
    gc.callbacks.remove(on_collection)
    assert len(sizes) >= 5
    assert max(sizes[1:]) < 50_000 <= len(kept)


def test_new_garbage_is_freed_at_once(collections):
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_any_number_of_small_objects_brings_no_look_at_everything():
    """As many as before came with every large request, and a look at all of them took 60 to 190 ms."""
    with ShortCollections(lambda: 1 << 30):
        node, kept = Node(), []
        gone = weakref.ref(node)
        gc.collect()  # it lives, and is set aside
        base = gc.get_freeze_count()
        del node
        while len(kept) * MANY < 2 * base + 10 * MANY:
            kept.append([[] for _ in range(MANY)])
            gc.collect()
        assert gone() is not None


def test_garbage_that_was_set_aside_is_freed_when_the_memory_has_doubled():
    size = 1 << 30
    with ShortCollections(lambda: size):
        node = Node()
        gone = weakref.ref(node)
        gc.collect()  # it lives, and is set aside
        del node
        size = (2 << 30) + (256 << 20) - 1
        gc.collect()
        gc.collect()
        assert gone() is not None, "nothing has looked at it"
        size += 1
        gc.collect()  # the next one looks at everything
        gc.collect()
        assert gone() is None
        assert gc.get_freeze_count(), "what lives is set aside again"


def test_the_memory_of_the_process_is_told_in_bytes():
    before = private_bytes()
    with mmap(-1, 32 << 20, MAP_PRIVATE | MAP_ANONYMOUS) as held:  # an object might find room that is there already
        held.write(b"x" * (32 << 20))
        assert 24 << 20 <= private_bytes() - before <= 128 << 20


def test_collections_are_left_to_python_afterwards():
    before, thresholds = list(gc.callbacks), gc.get_threshold()
    with ShortCollections():
        assert gc.callbacks != before
    assert (gc.callbacks, gc.get_threshold()) == (before, thresholds)
    assert gc.get_freeze_count() == 0
