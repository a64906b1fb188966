"""A name that is not there, and one that may have been meant."""

import pytest

from sparklog.config.likeness import alike


@pytest.mark.parametrize(
    ("name", "there", "meant"),
    [
        ("click", {"clicks", "users"}, "; did you mean 'clicks'?"),
        ("orders", {"clicks", "users"}, ""),
        ("clicks", set(), ""),
    ],
)
def test_the_nearest_is_asked_for(name, there, meant):
    assert alike(name, there) == meant
