"""Up to where a log and a copy of it have the same history."""

import pytest

from sparklog.log.directories.futures import common_end
from sparklog.log.leader_epochs import EpochEntry


def entries(*pairs):
    return [EpochEntry(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "end"),
    [
        ([], 10, [], 7, 7),
        ([(0, 0)], 10, [(0, 0)], 7, 7),
        ([(0, 0), (3, 5)], 10, [(0, 0)], 5, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0), (3, 5)], 8, 8),
        ([(0, 0), (3, 5)], 10, [(0, 0), (2, 5)], 8, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0), (3, 6)], 8, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0)], 8, 5),
        ([(0, 4), (3, 5)], 10, [(0, 0), (3, 5)], 8, 8),  # the log has lost its beginning
        ([(3, 7)], 10, [(0, 0), (2, 5)], 8, 7),
        ([(0, 0), (3, 10)], 10, [(0, 0)], 10, 10),  # an epoch without a batch
    ],
)
def test_the_history_is_common_up_to_where_the_epochs_differ(one, one_end, other, other_end, end):
    assert common_end(entries(*one), one_end, entries(*other), other_end) == end
    assert common_end(entries(*other), other_end, entries(*one), one_end) == end
