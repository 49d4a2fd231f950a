"""The HTTP service: search over the network, with keys, limits, metrics and a console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pointsman._lazy import lazily

if TYPE_CHECKING:
    from pointsman.server.access import Access
    from pointsman.server.app import create_app
    from pointsman.server.keys import KeyStore
    from pointsman.server.limits import Limits
    from pointsman.server.run import serve

__all__ = ["Access", "KeyStore", "Limits", "create_app", "serve"]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "Access": ".access",
        "KeyStore": ".keys",
        "Limits": ".limits",
        "create_app": ".app",
        "serve": ".run",
    },
)
