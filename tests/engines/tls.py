"""TLS before a server, as a cluster has it: certificates of our own, and who came by with what."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hpack
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hyperframe.frame import Frame, HeadersFrame

HOST = "127.0.0.1"
_SHUTDOWN_S = 0.5
_PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class Certificate:
    """A certificate of this machine and its key, and the authority that vouches for it."""

    def __init__(self, folder: Path, name: str) -> None:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        key = ec.generate_private_key(ec.SECP256R1())
        authority, own = _named(f"authority of {name}"), _named(name)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        # From Python 3.13 on these two are asked for.
        identity = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
        vouched_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity)
        self.authority = folder / f"{name}-authority.pem"
        self.file, self.key_file = folder / f"{name}.pem", folder / f"{name}.key"
        self.authority.write_bytes(
            _builder(authority, authority, authority_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS, critical=True)
            .add_extension(identity, critical=False)
            .sign(authority_key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )
        self.file.write_bytes(
            _builder(own, authority, key)
            .add_extension(address, critical=False)
            .add_extension(vouched_by, critical=False)
            .sign(authority_key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )
        kinds = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.key_file.write_bytes(key.private_bytes(*kinds))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )


class Front:
    """Speaks TLS, and hands what it hears to a server that does not."""

    def __init__(self, target: str, own: Certificate, client: Certificate | None) -> None:
        self._target_host, _, self._target_port = target.rpartition(":")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(own.file, own.key_file)
        self._context.set_alpn_protocols(["h2", "http/1.1"])
        if client is not None:
            self._context.load_verify_locations(client.authority)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.tokens: set[str] = set()
        """What they who came said in `authorization`."""
        self.address = ""
        self._ends: list[asyncio.StreamWriter] = []
        self._passing: set[asyncio.Task[None]] = set()
        self._begun, self._over = threading.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._pass_on, HOST, 0, ssl=self._context, ssl_shutdown_timeout=_SHUTDOWN_S
        )
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        self._begun.set()
        await self._over.wait()
        server.close()
        for end in self._ends:
            end.close()
        while self._passing:
            await asyncio.wait(self._passing)
        await asyncio.gather(*(end.wait_closed() for end in self._ends), return_exceptions=True)

    async def _pass_on(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        this = asyncio.current_task()
        assert this is not None
        self._passing.add(this)
        this.add_done_callback(self._passing.discard)
        reader, writer = await asyncio.open_connection(self._target_host, int(self._target_port))
        self._ends += (back, writer)
        is_http2 = back.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        listens = _Http2() if is_http2 else _Http1()
        there, here = self._copy(client, writer, listens), self._copy(reader, back, None)
        await asyncio.gather(there, here, return_exceptions=True)

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        listens: _Http1 | _Http2 | None,
    ) -> None:
        try:
            while data := await source.read(65536):
                if listens is not None:
                    self.tokens.update(listens.heard(data))
                target.write(data)
                await target.drain()
        finally:
            target.close()

    @contextmanager
    def open(self) -> Iterator[Front]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            assert self._begun.wait(30)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()


class _Http1:
    def heard(self, data: bytes) -> Iterator[str]:
        for line in data.split(b"\r\n"):
            name, _, value = line.partition(b": ")
            if name.lower() == b"authorization":
                yield value.decode()


class _Http2:
    def __init__(self) -> None:
        self._headers = hpack.Decoder()
        self._data = b""
        self._is_first = True

    def heard(self, data: bytes) -> Iterator[str]:
        self._data += data
        if self._is_first and len(self._data) >= _PREFACE:
            self._data, self._is_first = self._data[_PREFACE:], False
        while not self._is_first and len(self._data) >= 9:
            frame, length = Frame.parse_frame_header(memoryview(self._data[:9]))
            if len(self._data) < 9 + length:
                return
            frame.parse_body(memoryview(self._data[9 : 9 + length]))
            self._data = self._data[9 + length :]
            if isinstance(frame, HeadersFrame):
                for name, value in self._headers.decode(frame.data, raw=True):
                    if name == b"authorization":
                        yield value.decode()


@contextmanager
def behind_tls(target: str, own: Certificate, client: Certificate | None = None) -> Iterator[Front]:
    """A server that is reached by TLS only; with `client`, by those only who have that one."""
    with Front(target, own, client).open() as front:
        yield front
