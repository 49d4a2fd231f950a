"""Pointsman as a server of the Model Context Protocol: agents search, read, and learn how and where was searched.

All tools are for reading. Over stdio the server belongs to the program that has started it, which reads the workspace's
files anyway. Over streamable HTTP it stands behind the same checks as the HTTP service: keys, loopback addresses alone
as long as there are none, hosts, limits.

What stored documents say is data that anybody may have written. It comes back as strings of JSON, which no document can
feign the end of. Every answer has a size that it cannot exceed. What is wrong with a call is told in a tool's result,
so that a model can mend it; what went wrong here is told to the log alone.
"""

from pointsman.integrations.mcp.sdk import VERSION  # first: it says what is wrong with the SDK
from pointsman.integrations.mcp.servers import PATH, create_http_app, create_server, serve_http, serve_stdio
from pointsman.integrations.mcp.shapes import MAX_CHARS, MAX_DATASETS, MAX_K

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
