"""A server of MCP whose long calls are durable: `python -m examples.mcp`."""
