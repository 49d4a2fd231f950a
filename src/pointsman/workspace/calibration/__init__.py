"""Measuring and fitting: what turns questions, with or without labels, into a dataset's calibration.

Searches do not import this package: they judge by what it has fitted (`pointsman.retrieval.judge.relevance`).
"""
