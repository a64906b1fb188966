"""Fetching without I/O: what to ask of a broker, and what its answers mean.

A client's loop, a Spark task and a follower each drive it in their own way.
"""
