"""The agent's state: sessions, conversation, context, phases, plan, external state.

Four things that most agents keep in one list of messages have a place of their own here.
"""
