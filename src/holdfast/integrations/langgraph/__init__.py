"""LangGraph on Holdfast: threads as sessions, a store on values, nodes and tools that run once.

`HoldfastSaver(hf)` is a checkpointer: a thread is a session of ours, and a checkpoint costs what
is new in it. `HoldfastStore(hf)` is a long-term store. `durable_node` and `durable_tool` journal
what a node does, so that a node that LangGraph runs again after a crash repeats no effect.

Read `saver` first, then `threads` (what is in the log) and `nodes`.
"""

from holdfast.integrations.frameworks import need

need("langgraph", langgraph=">=1.2,<1.3", langgraph_checkpoint=">=4.3,<5")

from holdfast.integrations.langgraph.nodes import durable_node, durable_tool  # noqa: E402
from holdfast.integrations.langgraph.past import ImportedThreads, import_threads  # noqa: E402
from holdfast.integrations.langgraph.saver import HoldfastSaver  # noqa: E402
from holdfast.integrations.langgraph.store import HoldfastStore  # noqa: E402

__all__ = [
    "HoldfastSaver",
    "HoldfastStore",
    "ImportedThreads",
    "durable_node",
    "durable_tool",
    "import_threads",
]
