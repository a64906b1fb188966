"""The options of ``format("sparklog")``: one table, from which parsing, messages and documentation come."""
