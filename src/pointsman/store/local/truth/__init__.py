"""The SQLite file that all indexes of a dataset in a folder are derived from."""
