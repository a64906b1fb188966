"""What is said of a transaction that another program took over, with a coordinator that answers as a test says."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.client.admin.prepared import PreparedAdmin, PreparedTransaction
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTransactionsResponse, EndTxnResponse

OURS, THEIRS = (7, 0), (7, 1)


class _Coordinator:
    """Refuses every end, for the pair is not the id's any more, and tells of one state after the other."""

    def __init__(self, *states):
        self.states = list(states)

    async def coordinator_request(self, kind, key, api, build, *, check, ceiling=None):
        while True:
            answer = self._answer(api)
            try:
                check(answer)
            except ApiError as error:
                if not error.code.retriable:
                    raise
            else:
                return answer

    def _answer(self, api):
        if api is ApiKey.END_TXN:
            return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        state, pair = self.states.pop(0)
        described = SimpleNamespace(
            error_code=0,
            transactional_id="x",
            transaction_state=state,
            producer_id=pair[0],
            producer_epoch=pair[1],
            transaction_timeout_ms=1,
            transaction_start_time_ms=1,
            topics=[],
        )
        assert api is ApiKey.DESCRIBE_TRANSACTIONS
        return DescribeTransactionsResponse(transaction_states=[described])


@pytest.mark.parametrize(
    ("states", "commit", "told"),
    [
        (["PrepareCommit", "PrepareCommit", "CompleteCommit"], True, True),
        (["PrepareAbort", "CompleteAbort"], True, False),
        (["PrepareEpochFence", "PrepareAbort", "CompleteAbort"], True, False),
        (["PrepareCommit", "CompleteCommit"], False, False),
        (["CompleteCommit"], True, True),
    ],
)
def test_what_another_has_begun_to_end_is_told_when_it_has_ended(states, commit, told):
    coordinator = _Coordinator(*((state, THEIRS) for state in states))
    admin = PreparedAdmin(coordinator)
    assert asyncio.run(admin.end_prepared([PreparedTransaction("x", *OURS)], commit=commit)) == [told]
    assert coordinator.states == []


@pytest.mark.parametrize(("pair", "told"), [(THEIRS, None), (OURS, False)])
def test_of_an_id_without_a_transaction_only_its_own_pair_tells_that_there_was_none(pair, told):
    admin = PreparedAdmin(_Coordinator(("Empty", pair)))
    assert asyncio.run(admin.end_prepared([PreparedTransaction("x", *OURS)], commit=True)) == [told]
