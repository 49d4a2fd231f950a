"""One dataset on disk: SQLite as the truth, a keyword and a vector index derived from it, healing themselves."""
