"""The users of a cluster and what they may do: principals, mechanisms, access control lists.

Only ``oauth`` does any I/O: it reads keys and fetches tokens.
"""
