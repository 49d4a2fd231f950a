"""PostgreSQL with pgvector as a store: exact BM25 over our tokens, vectors, many writers, a statement per search.

=================  =====================================================================================================
`connections`      connections shared by threads and event loops; retries, timeouts, errors without passwords
`statements`       the tables, the search, filters as SQL
`reader`           what is read of a dataset
`view`             `PostgresViewStore`: the documents that exist in a view
`store`            `PostgresStore`: one dataset
`backend`          `PostgresBackend`: a workspace in one schema of a database
=================  =====================================================================================================
"""

from pointsman.store.postgres.postgres_backend import PostgresBackend
from pointsman.store.postgres.postgres_store import PostgresStore

__all__ = ["PostgresBackend", "PostgresStore"]
