"""Messages to and from the formats of providers, without loss.

One module a format, each with the same three functions on plain JSON data; no client library is
loaded:

| module | `from_wire` | `to_wire` |
|---|---|---|
| `openai_chat` | the `messages` of a chat completion | the same |
| `openai_responses` | the `input` or `output` items of a response | `input` items |
| `anthropic` | `messages`, and the `system` parameter | `(system, messages)` |

and `tools_to_wire`. A message read from a format is written to it just as it was. A part that only
that format knows stays in `extra` or as a `Foreign` part, and is sent to no other. Calls and
results are always written in pairs: every call has its result right after it.
"""
