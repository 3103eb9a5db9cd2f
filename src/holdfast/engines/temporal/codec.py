"""What Temporal keeps of tasks, encrypted: for a store that has a key.

Temporal is shown the arguments and results of calls, and why they failed. If the store is
encrypted, so is all of that: each payload is a box (see `stores.sealed.boxes`), closed with a key
that follows from the root key of the store. A new master key changes nothing here, as the root key
stays. Readable remain the ids and types of tasks, the names of steps and the types of errors, by
which Temporal finds them.

Temporal's own page shows boxes: it could open them only by asking a server that has the key (a
"codec server"), and there is none here. `holdfast show` and `holdfast log` read the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    PayloadCodec,
)

from holdfast.engines.port import Closes
from holdfast.errors import BadInput, WrongKey

ENCODING = "binary/holdfast-box"


def converter(box: Closes | None, given: DataConverter | None = None) -> DataConverter:
    """How values are turned into what Temporal keeps, with a key or without."""
    plain = given or DataConverter(payload_converter_class=_Plain)
    if box is None:
        return plain
    if given is not None:
        raise BadInput(
            "Temporal(data_converter=…) can't be had with an encrypted store: what Temporal keeps "
            "of its tasks is encrypted by Holdfast(…, key=…). Leave data_converter out"
        )
    return replace(
        plain,
        payload_codec=BoxCodec(box),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


class BoxCodec(PayloadCodec):
    """Closes what Temporal is given, and opens what it gives back."""

    def __init__(self, box: Closes) -> None:
        self._box = box

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Payloads, each in a box."""
        return [self._closed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """What is in the boxes. Others are left as they are: who would read them is refused."""
        return [self._opened(payload) for payload in payloads]

    def _closed(self, payload: Payload) -> Payload:
        box = self._box.close(payload.SerializeToString(), "payload")
        return Payload(metadata={"encoding": ENCODING.encode()}, data=box)

    def _opened(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING.encode():
            return payload
        opened = self._box.open(payload.data, "payload")
        return payload if opened is None else Payload.FromString(opened)


class _Closed(EncodingPayloadConverter):
    """Says why a box was not opened."""

    @property
    def encoding(self) -> str:
        return ENCODING

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        raise WrongKey(
            "what Temporal keeps of this task is encrypted with the key of a store that is not "
            "open here: open that store with Holdfast(…, key=…). The workers of each store need a "
            "queue of their own, Temporal(…, queue=…)"
        )


class _Plain(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(*DefaultPayloadConverter.default_encoding_payload_converters, _Closed())
