"""The agent's state: sessions, conversation, context, phases, plan, external state.

Four things that most agents keep in one list of messages have a place of their own here:
conversation, working memory, the state of a task, and what is known of the outside world.
"""

from holdfast.agent.context import Context, LeftOut, Section, context, shown
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
from holdfast.agent.model import Prices, Reply, Request, ToolInfo, Usage
from holdfast.agent.phases import Phases
from holdfast.agent.sessions import Session, open_session, session
from holdfast.agent.state import AgentState, ToolCallRecord, WorkingMemory

__all__ = [
    "AgentState",
    "Context",
    "Foreign",
    "LeftOut",
    "Media",
    "Message",
    "Phases",
    "Prices",
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
    "context",
    "open_session",
    "session",
    "shown",
    "system",
    "tool_result",
    "turns",
    "user",
]
