"""Which notifications are new, whatever numbers strangers have put among them."""

import pytest

from sparklog.broker.following import Notifications

HUGE = (1 << 31) - 1


@pytest.mark.parametrize(
    ("known", "numbers", "fresh"),
    [
        ([], [], []),
        ([], [0, 1], [0, 1]),
        ([4, 5], [4, 5, 6], [6]),
        ([4, 5], [5], []),
        ([4, 5], [], []),
        ([4, 5], [6, 7], [6, 7]),
        ([4, 5], [5, 7], None),
        ([4, 5], [4], None),
        ([4, 5], [0], None),
        ([4], [4, HUGE], None),
        ([4, HUGE], [4, HUGE], []),
        ([4, HUGE], [4, 5, HUGE], None),
        ([4, HUGE], [4], None),
        ([4], [-7, 4], None),
    ],
)
def test_what_is_new_is_told_or_that_something_may_be_missed(known, numbers, fresh):
    assert Notifications(known).fresh(numbers) == fresh


def test_what_was_taken_over_is_not_new_again():
    notifications = Notifications([3])
    for number in notifications.fresh([3, 4, 5]):
        notifications.take(number)
        assert number not in notifications.fresh([3, 4, 5])
    assert notifications.fresh([4, 5, 6]) == [6]
