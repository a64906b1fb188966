"""ListTransactions: the transactional ids that this broker coordinates, optionally those in some states only, of some
producers, or with a transaction that has been running for long.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListTransactionsResponse, Message
from sparklog.txn.state import TransactionState

API = ApiKey.LIST_TRANSACTIONS
VERSIONS = range(0, 2)
_STATES = {each.label for each in TransactionState}


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    states, producers = set(message.state_filters), set(message.producer_id_filters)
    now_ms, longer_than_ms = broker.clock.now_ms(), message.duration_filter
    error, found = broker.transactions.list_transactions()
    listed = [
        ListTransactionsResponse.TransactionState(
            transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state.label
        )
        for each in found
        if (not states or each.state.label in states)
        and (not producers or each.producer_id in producers)
        and (longer_than_ms < 0 or now_ms - each.start_ms > longer_than_ms)
    ]
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=int(error),
        unknown_state_filters=sorted(states - _STATES),
        transaction_states=listed,
    )
