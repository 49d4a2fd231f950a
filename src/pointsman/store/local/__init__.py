"""One dataset on disk: SQLite as the source of truth, with a keyword and a vector index derived from it and rebuilt."""
