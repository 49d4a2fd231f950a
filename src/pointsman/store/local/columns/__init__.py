"""Metadata as columns in memory: filters and views."""
