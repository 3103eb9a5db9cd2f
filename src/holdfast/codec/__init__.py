"""Values to JSON bytes and back, so that what comes back is what went in.

A step's result goes through here on the first run as well as on a replay, so the two see the same
value: of the same type, or refused at once with an error that says where and why. Nothing is
pickled, and reading runs nothing that the data names. Annotations that
leave nothing open are written as natural JSON (`closed`), all others with tags (`tags`).

Code may change between two runs. A field that a class has got since then takes its default, and
one that it has lost is dropped. A parameter that a function has lost is an error.

Internal. It uses `core`. Read `shape` first: how the values of one annotation become bytes.
"""

from holdfast.codec.growing import Growing, Listing, ListShape, naming
from holdfast.codec.pydantic_types import without_veto
from holdfast.codec.secrets import is_complete, is_whole
from holdfast.codec.shape import (
    Shape,
    args_hash,
    canonical,
    from_outside,
    shape_of,
    shape_of_value,
    unchecked,
)
from holdfast.codec.signature import Given, Signature

__all__ = [
    "Given",
    "Growing",
    "ListShape",
    "Listing",
    "Shape",
    "Signature",
    "args_hash",
    "canonical",
    "from_outside",
    "is_complete",
    "is_whole",
    "naming",
    "shape_of",
    "shape_of_value",
    "unchecked",
    "without_veto",
]
