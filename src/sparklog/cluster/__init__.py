"""A cluster as its brokers describe it: values, and the rules by which answers are believed. No socket, no clock."""
