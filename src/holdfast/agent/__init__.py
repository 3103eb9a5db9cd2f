"""The agent's state: sessions, conversation, context, phases, plan, external state.

Four things that most agents keep in one list of messages have a place of their own here:
conversation, working memory, the state of a task, and what is known of the outside world.

Public, by the names in `__all__`. It uses `api` and everything below. Read `sessions` first, then
`contexts`, then `orchestrator`.
"""

from holdfast.agent.compaction import Compaction, compact
from holdfast.agent.contexts import Context, LeftOut, Section, context, shown
from holdfast.agent.externals import Reading, external, fact
from holdfast.agent.loop import AgentGaveUp, AgentResult, LimitReached, Limits, Loop
from holdfast.agent.memories import Entry, Found, Memory, memory
from holdfast.agent.model import Reply, Request, ToolInfo, transcript
from holdfast.agent.model_calls import ModelStep
from holdfast.agent.money import Budget, BudgetExceeded, Metered, load_prices
from holdfast.agent.orchestrator import Orchestrator
from holdfast.agent.sessions import Session, open_session, session
from holdfast.agent.state import AgentState, Phases, ToolCallRecord, WorkingMemory
from holdfast.agent.tooling import AgentTool, tool_infos
from holdfast.agent.turn import TurnDone, make_calls, results_of, turn
from holdfast.agent.values import Value, Values, values
from holdfast.core.usage import Prices, Usage
from holdfast.log.messages import (
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
from holdfast.log.tokens import Calibrated, best_counter, calibrate

__all__ = [
    "AgentGaveUp",
    "AgentResult",
    "AgentState",
    "AgentTool",
    "Budget",
    "BudgetExceeded",
    "Calibrated",
    "Compaction",
    "Context",
    "Entry",
    "Foreign",
    "Found",
    "LeftOut",
    "LimitReached",
    "Limits",
    "Loop",
    "Media",
    "Memory",
    "Message",
    "Metered",
    "ModelStep",
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
    "TurnDone",
    "Usage",
    "Value",
    "Values",
    "WorkingMemory",
    "assistant",
    "best_counter",
    "calibrate",
    "compact",
    "context",
    "external",
    "fact",
    "load_prices",
    "make_calls",
    "memory",
    "open_session",
    "results_of",
    "session",
    "shown",
    "system",
    "tool_infos",
    "tool_result",
    "transcript",
    "turn",
    "turns",
    "user",
    "values",
]
