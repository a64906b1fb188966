"""The log directories of a broker: which partition lies in which, moves between them, and the failure of one."""
