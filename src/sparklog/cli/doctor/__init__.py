"""What may be wrong with a cluster, by noun.

A module's functions take what was asked of the cluster and return findings: they ask nothing themselves, so tests give
them clusters that are hard to make. ``examination`` asks, and drives them.

Invariant: a check that cannot be done is a finding too (a note), so that "nothing found" means that all was looked at.
"""
