"""What every client of a cluster shares: settings, connections, metadata, who leads what, when to ask again."""
