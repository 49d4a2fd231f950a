"""OpenSearch as a store: one index per dataset, distributed over the nodes of a cluster.

=================  =====================================================================================================
`cluster`          the client; retries, timeouts, errors without passwords
`queries`          the index, searches and filters in OpenSearch's language
`store`            `OpenSearchStore`: one dataset
`backend`          `OpenSearchBackend`: a workspace in the indexes of one prefix
=================  =====================================================================================================
"""

from pointsman.store.opensearch.opensearch_backend import OpenSearchBackend
from pointsman.store.opensearch.opensearch_store import OpenSearchStore

__all__ = ["OpenSearchBackend", "OpenSearchStore"]
