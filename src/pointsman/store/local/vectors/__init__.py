"""The vector index of a dataset in a folder."""
