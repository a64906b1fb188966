"""The harness: clocks that tests tick, clusters that tests break, real programs of other projects."""
