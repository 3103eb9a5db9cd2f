"""The Model Context Protocol: long calls of tools as durable tasks.

    hf = Holdfast("sqlite:///server.db")
    tasks = DurableTasks(hf)
    server = MCPServer("travel", extensions=[tasks], lifespan=tasks.lifespan)


    @server.tool()
    @durable(hf)
    def plan_trip(city: str) -> str: ...

A call of such a tool becomes a task of Holdfast. Its client gets a handle when the task is on disk,
asks after it by `tasks/get`, answers its questions by `tasks/update`, and ends it by
`tasks/cancel`: the extension `io.modelcontextprotocol/tasks` (SEP-2663). The server may be killed
and started anew meanwhile, or another process may serve the next request: all is in the log.

`tasks` has the extension, `asking` the way from a question to a form and back, `following` the
client's side, and `sessions` keeps sessions of streamable HTTP over a restart. Read `tasks` first.
The package uses `api` and `agent.values` and what is below.
"""

from holdfast.integrations.frameworks import need

need("mcp", mcp=">=2.3,<3")

from holdfast.integrations.mcp.following import FollowedTask, TaskFollower  # noqa: E402
from holdfast.integrations.mcp.sessions import DurableSessions  # noqa: E402
from holdfast.integrations.mcp.tasks import KEY, DurableTasks, durable  # noqa: E402

__all__ = ["KEY", "DurableSessions", "DurableTasks", "FollowedTask", "TaskFollower", "durable"]
