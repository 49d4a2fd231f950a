"""A server of the Model Context Protocol that sends any JSON as its tools, which an SDK would refuse to send.

``python tests/raw_tool_server.py TOOLS.json``: a list of definitions. Every call is answered with ``called`` and an
empty object as structured content, unless the definition has a member ``result``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = 100  # tools


def main() -> None:
    tools: list[Any] = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
    called = {"content": [{"type": "text", "text": "called"}], "structuredContent": {}}
    answers = {tool["name"]: tool.pop("result") for tool in tools if isinstance(tool, dict) and "result" in tool}
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if "id" not in request:
            continue
        params = request.get("params") or {}
        start = int(params.get("cursor") or 0)
        following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
        results = {
            "initialize": json.dumps({**about, "protocolVersion": params.get("protocolVersion")}),
            "tools/list": json.dumps({"tools": tools[start : start + PAGE], **following}),
            "tools/call": json.dumps(answers.get(str(params.get("name")), called)),
            "ping": "{}",
        }
        result = results.get(request["method"])
        outcome = '"error": {"code": -32601, "message": "no such method"}' if result is None else f'"result": {result}'
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, {outcome}}}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main()
