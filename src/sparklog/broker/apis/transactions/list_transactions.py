"""ListTransactions: the transactional ids that this broker coordinates, optionally those in some states only, of some
producers, with a transaction that has been running for long, or whose name matches a regular expression.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError
from sparklog.group.consumer.topics import matching
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from sparklog.security.access import Operation, ResourceType
from sparklog.txn.state import Transaction, TransactionState

API = ApiKey.LIST_TRANSACTIONS
VERSIONS = range(0, 3)
_STATES = {each.label for each in TransactionState}


async def handle(broker: BrokerContext, request: ApiRequest[ListTransactionsRequest]) -> ListTransactionsResponse:
    message = request.message
    states, producers = set(message.state_filters), set(message.producer_id_filters)
    now_ms, longer_than_ms = broker.clock.now_ms(), message.duration_filter
    error, found = broker.transactions.list_transactions()
    try:
        if message.transactional_id_pattern:
            ids = [each.transactional_id for each in found]
            async with broker.transactions.matching:
                matched = await broker.expressions.run(matching, message.transactional_id_pattern, ids)
            found = [each for each in found if each.transactional_id in matched]
    except ApiError as refused:
        error, found = refused.code, []
    listed, rights = [], Rights(broker, request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, quietly=True)
    async for each in broker.turns.paced(found):
        if (
            (not states or each.state.label in states)
            and (not producers or each.producer_id in producers)
            and (longer_than_ms < 0 or now_ms - each.start_ms > longer_than_ms)
            and rights.allows(each.transactional_id)
        ):
            listed.append(_listed(each))
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=int(error),
        unknown_state_filters=sorted(states - _STATES),
        transaction_states=listed,
    )


def _listed(found: Transaction) -> ListTransactionsResponse.TransactionState:
    return ListTransactionsResponse.TransactionState(
        transactional_id=found.transactional_id, producer_id=found.producer_id, transaction_state=found.state.label
    )
