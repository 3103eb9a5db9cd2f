"""What is different between two values, as data: found, applied, turned round and described."""

from holdfast.history.differences.described import DiffLine, describe
from holdfast.history.differences.differing import Change, Diff, apply, diff, inverse

__all__ = ["Change", "Diff", "DiffLine", "apply", "describe", "diff", "inverse"]
