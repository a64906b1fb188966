"""The web page: a client of the cluster that shows what it finds to browsers. ``docs/adr/0039`` has its invariants."""
