"""An MCP server on stdin and stdout with one tool, which writes each of its calls to a file."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("counter")


@server.tool()
def count(label: str) -> str:
    """Count a label."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        file.write(f"{label}\n")
    return f"counted {label}"


if __name__ == "__main__":
    server.run()
