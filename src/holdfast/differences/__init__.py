"""What is different between two values, as data: found, applied, turned round and described."""

from holdfast.differences.applying import apply
from holdfast.differences.described import Line, describe
from holdfast.differences.differing import Change, Diff, diff, inverse

__all__ = ["Change", "Diff", "Line", "apply", "describe", "diff", "inverse"]
