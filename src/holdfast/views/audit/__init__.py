"""The audit of a task: who did what, when, with what, and whether its log can be believed."""

from holdfast.views.audit.entry import Audit, AuditEntry, Claim, Verification
from holdfast.views.audit.reading import audit

__all__ = ["Audit", "AuditEntry", "Claim", "Verification", "audit"]
