"""Choosing where and how to search: the datasets of a search, and the strategy that a question suggests."""
