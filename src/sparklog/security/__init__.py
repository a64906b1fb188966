"""Who somebody is and what they may do: principals, mechanisms, access control lists. Nothing here does any I/O."""
