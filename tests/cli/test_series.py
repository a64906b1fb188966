"""A command on several things of which some are refused."""

import pytest

from sparklog.cli.series import in_series
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode


def test_what_was_refused_is_said_though_the_connection_breaks_at_the_next(capsys):
    def act(name):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a is in use") if name == "a" else ConnectionFailed("no answer")

    with pytest.raises(ConnectionFailed, match="no answer"):
        in_series(["a", "b", "c"], act)
    assert capsys.readouterr().err == "INVALID_REQUEST: a is in use\n"


def test_of_several_refusals_the_last_is_raised_and_the_others_are_said(capsys):
    def act(name):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is in use")

    with pytest.raises(ApiError, match="b is in use"):
        in_series(["a", "b"], act)
    assert capsys.readouterr().err == "INVALID_REQUEST: a is in use\n"
