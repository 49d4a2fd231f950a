"""Pointsman as a Model Context Protocol server: agents search, read, and learn how and where was searched.

All tools are read-only. Over stdio the server belongs to the program that started it, which can read the workspace's
files anyway. Over streamable HTTP it has the same checks as the HTTP service: keys, only loopback addresses as long as
there are no keys, hosts, limits.

Stored documents are untrusted data that anyone may have written. They are returned as JSON strings, whose end no
document can forge. Every answer is limited in size. Errors in a call are explained in the tool's result, so that a
model can correct them; internal errors are only logged.
"""

from pointsman.integrations.mcp.mcp_sdk import VERSION  # first: it reports problems with the SDK
from pointsman.integrations.mcp.mcp_servers import PATH, create_http_app, create_server, serve_http, serve_stdio
from pointsman.integrations.mcp.tool_schemas import MAX_CHARS, MAX_DATASETS, MAX_K

__all__ = [
    "MAX_CHARS",
    "MAX_DATASETS",
    "MAX_K",
    "PATH",
    "VERSION",
    "create_http_app",
    "create_server",
    "serve_http",
    "serve_stdio",
]
