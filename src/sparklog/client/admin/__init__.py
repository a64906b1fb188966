"""A cluster looked at and changed: topics, settings, groups, transactions."""
