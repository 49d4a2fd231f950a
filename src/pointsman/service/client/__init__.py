"""A remote workspace with the interface of a local one.

`Client` has the methods of `Workspace`, and `RemoteDataset` those of `Dataset` that HTTP can carry, so a program moves
to ``pointsman serve`` by changing one line. It returns the library's own types and raises its own errors; failures that
only a service can have are `ServiceError`.

Responses are checked before they are used. Each sequence of requests is written once, for synchronous and asynchronous
calls; see `pointsman.tools.parallel_calls`.
"""

from __future__ import annotations

from pointsman.service.client.remote_dataset import RemoteDataset
from pointsman.service.client.remote_workspace import Client

__all__ = ["Client", "RemoteDataset"]
