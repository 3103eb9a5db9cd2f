"""The agent's state: sessions, conversation, context, phases, plan, external state.

Four things that most agents keep in one list of messages have a place of their own here:
conversation, working memory, the state of a task, and what is known of the outside world.
"""

from holdfast.agent.compaction import Compaction, compact
from holdfast.agent.contexts import Context, LeftOut, Section, context, shown
from holdfast.agent.externals import Reading, external, fact
from holdfast.agent.loop import AgentResult, Limits, Loop
from holdfast.agent.memories import Entry, Found, Memory, memory
from holdfast.agent.messages import (
    Foreign,
    Media,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_result,
    turns,
    user,
)
from holdfast.agent.model import Reply, Request, ToolInfo
from holdfast.agent.orchestrator import Orchestrator
from holdfast.agent.phases import Phases
from holdfast.agent.sessions import Session, open_session, session
from holdfast.agent.state import AgentState, ToolCallRecord, WorkingMemory
from holdfast.agent.transcript import transcript
from holdfast.usage import Prices, Usage

__all__ = [
    "AgentResult",
    "AgentState",
    "Compaction",
    "Context",
    "Entry",
    "Foreign",
    "Found",
    "LeftOut",
    "Limits",
    "Loop",
    "Media",
    "Memory",
    "Message",
    "Orchestrator",
    "Phases",
    "Prices",
    "Reading",
    "Refusal",
    "Reply",
    "Request",
    "Section",
    "Session",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolCallRecord",
    "ToolInfo",
    "ToolResult",
    "Usage",
    "WorkingMemory",
    "assistant",
    "compact",
    "context",
    "external",
    "fact",
    "memory",
    "open_session",
    "session",
    "shown",
    "system",
    "tool_result",
    "transcript",
    "turns",
    "user",
]
