"""The audit of a task: who did what, when, with what, and whether its log can be believed."""

from holdfast.audit.entry import Audit, Claim, Entry, Verification
from holdfast.audit.reading import audit

__all__ = ["Audit", "Claim", "Entry", "Verification", "audit"]
