"""What tests wait for while a streaming query runs."""

from sparklog.testing.eventually import eventually

_PATIENCE_S = 300


def wait_for(query, condition, what):
    """The first true value of ``condition()``. Raises what has ended the query: Spark's start of a worker, for one."""

    def found():
        if value := condition():
            return value
        if (error := query.exception()) is not None:
            raise error
        return None

    return eventually(found, _PATIENCE_S, what)
