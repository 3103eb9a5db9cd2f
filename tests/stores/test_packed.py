"""A line that is packed comes back as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.queries import packed, unpacked

lines = st.binary(max_size=40) | st.binary(min_size=500, max_size=600)


@given(lines | lines.map(lambda line: b"\0" + line) | st.integers(0, 3000).map(lambda n: b"a" * n))
def test_a_line_comes_back_as_it_was(line: bytes) -> None:
    assert unpacked(packed(line)) == line
    assert len(packed(line)) <= len(line) + 20


def test_what_was_changed_is_given_as_it_is() -> None:
    small = packed(b"x" * 1000)
    assert unpacked(small[:5] + b"\xff" + small[6:]) != b"x" * 1000
    assert unpacked(b"\0garbage") == b"\0garbage"
