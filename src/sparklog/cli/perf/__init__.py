"""How fast a cluster takes, gives and passes on records: the runs of ``sparklog perf``.

Batches are made, sent, fetched and decoded as columns, never record by record, so that the broker is what is measured
and not this process. Only ``end_to_end`` sends single records, one at a time, since that is what it measures.
"""
