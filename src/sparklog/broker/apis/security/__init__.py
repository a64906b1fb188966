"""The APIs of authentication, ACLs, users and delegation tokens."""
