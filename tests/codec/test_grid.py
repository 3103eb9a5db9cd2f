"""What the codec writes is what it always wrote, and comes back as what it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.codec import shape_of
from holdfast.errors import Undecodable, Unserializable
from tests.codec import grid
from tests.codec.test_codec import same

RECORDED = [msgspec.json.decode(line) for line in grid.RECORDED.read_bytes().splitlines()]


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: row["of"])
def test_every_value_is_written_as_it_always_was(row):
    assert grid.ROWS[row["of"]]() == row["makes"]


def test_nothing_is_left_out_of_the_record():
    assert [row["of"] for row in RECORDED] == list(grid.ROWS)


@pytest.mark.parametrize("name", grid.ANNOTATIONS)
def test_what_is_written_comes_back_and_settles_to_the_same(name):
    shape = shape_of(grid.ANNOTATIONS[name])
    for called, value in grid.values().items():
        try:
            data = shape.dump(value)
        except Unserializable as error:
            with pytest.raises(Unserializable) as again:
                shape.settle(value)
            assert grid.refusal(again.value) == grid.refusal(error), called
            continue
        loaded = shape.load(data)
        assert same(shape.settle(value), (data, loaded)), called
        assert same(shape.load(shape.dump(loaded)), loaded), called
        assert same(value, loaded) or is_meant(value, loaded), called


def is_meant(value: Any, loaded: Any) -> bool:
    """A subclass of a plain type comes back as that type, where the annotation names it."""
    return value == loaded and isinstance(value, type(loaded) | int)


@pytest.mark.parametrize("name", grid.ANNOTATIONS)
def test_what_is_no_value_is_refused_and_nothing_else_is_raised(name):
    shape = shape_of(grid.ANNOTATIONS[name])
    for data in (b"", b"{", b"[1", b'{"$new":[]}', b'{"$type":"Nobody","of":{}}'):
        try:
            shape.load(data)
        except Undecodable:
            continue
        # A class all of whose fields have defaults takes any object, and leaves out what it has.
        assert name in ("Link", "Partial") and data[:2] == b'{"', (name, data)
