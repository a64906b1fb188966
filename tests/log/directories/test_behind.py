"""What nobody waits for lets what is waited for go first."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sparklog.log.directories.behind import Behind

MANY = 100


def test_what_is_waited_for_waits_for_one_piece_of_all_that_have_piled_up():
    done, may_go = [], threading.Event()
    with ThreadPoolExecutor(1) as disk:
        behind = Behind(disk)
        disk.submit(may_go.wait)
        for number in range(MANY):
            behind.submit(partial(done.append, number))
        awaited = disk.submit(lambda: list(done))
        may_go.set()
        assert awaited.result(60) == [0]
        over = threading.Event()
        behind.submit(over.set)
        assert over.wait(60)
    assert done == list(range(MANY))


def test_work_that_asks_for_more_is_followed_by_it():
    over = threading.Event()
    with ThreadPoolExecutor(1) as disk:
        behind = Behind(disk)
        behind.submit(lambda: behind.submit(over.set))
        assert over.wait(60)


def test_what_was_dropped_is_not_done_and_what_comes_then_is():
    done, may_go, over = [], threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as disk:
        behind = Behind(disk)
        disk.submit(may_go.wait)
        behind.submit(lambda: done.append("dropped"))
        behind.drop()
        behind.submit(over.set)
        may_go.set()
        assert over.wait(60)
    assert done == []
