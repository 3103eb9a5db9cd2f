"""Stored states along a log: any of its states opens fast, and all of them may be deleted."""
