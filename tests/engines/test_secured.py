"""Clusters as they are in production: behind TLS, with certificates, keys and tokens."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import TLSConfig

from holdfast import Holdfast, step, task
from holdfast.engines.port import Job
from holdfast.engines.restate import Restate
from holdfast.engines.temporal import Temporal
from holdfast.errors import EngineError
from holdfast.testing.servers import RestateServer, TemporalServer
from tests.engines.temporally import working
from tests.engines.tls import Certificate, behind_tls
from tests.engines.working import driving


@step
def secured_look(city: str) -> str:
    return f"{city} Inn"


@task
def secured_trip(city: str) -> str:
    return f"booked {secured_look(city)}"


def temporal_by(address: str, queue: str, own: Certificate, **options: Any) -> Temporal:
    key = options.pop("client", None)
    tls = TLSConfig(
        server_root_ca_cert=own.authority.read_bytes(),
        client_cert=key.file.read_bytes() if key else None,
        client_private_key=key.key_file.read_bytes() if key else None,
    )
    return Temporal(address, queue=queue, tls=tls, **options)


def test_temporal_behind_tls_with_a_key_for_its_api(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    own = Certificate(tmp_path, "server")
    with behind_tls(temporal.address, own) as front:
        engine = temporal_by(front.address, "by-key", own, api_key="s3cret")
        with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=engine) as hf, working(hf):
            assert hf.run(secured_trip, "Oslo", id="by-key-1") == "booked Oslo Inn"
    assert front.tokens == {"Bearer s3cret"}


def test_temporal_that_knows_its_clients_by_their_certificates(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    own, client = Certificate(tmp_path, "server"), Certificate(tmp_path, "client")
    store = f"sqlite:///{tmp_path}/s.db"
    with behind_tls(temporal.address, own, client) as front:
        stranger = temporal_by(front.address, "by-cert", own)
        with pytest.raises(EngineError, match="can't be reached"):
            stranger.query(_any_job())
        stranger.close()
        engine = temporal_by(front.address, "by-cert", own, client=client)
        with Holdfast(store, engine=engine) as hf, working(hf):
            assert hf.run(secured_trip, "Oslo", id="by-cert-1") == "booked Oslo Inn"


def test_a_certificate_that_nobody_vouches_for_is_refused(
    temporal: TemporalServer, restate: RestateServer, tmp_path: Path
) -> None:
    own, other = Certificate(tmp_path, "server"), Certificate(tmp_path, "other")
    with behind_tls(temporal.address, own) as front:
        engine = temporal_by(front.address, "by-nobody", other)
        with pytest.raises(EngineError, match="can't be reached"):
            engine.query(_any_job())
        engine.close()
    with behind_tls(restate.url.removeprefix("http://"), own) as front:
        url = f"https://{front.address}"
        with pytest.raises(EngineError, match=r"can't be reached.*[Cc]ertificate"):
            Restate(url, admin=url).query(_any_job())


def test_restate_behind_tls_with_a_token(
    restate: RestateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Certificate(tmp_path, "server")
    monkeypatch.setenv("SSL_CERT_FILE", str(own.authority))  # as if this machine trusted it
    ingress, admin = (url.removeprefix("http://") for url in (restate.url, restate.admin_url))
    with behind_tls(ingress, own) as front, behind_tls(admin, own) as back:
        engine = Restate(
            f"https://{front.address}",
            admin=f"https://{back.address}",
            listen="127.0.0.1:0",
            prefix="secured.",
            token="s3cret",
        )
        ready = threading.Event()
        with Holdfast(f"sqlite:///{tmp_path}/s.db", engine=engine) as hf:
            worker = engine.worker(hf, say=lambda text: ready.set())
            with driving(worker):
                assert ready.wait(30)
                assert hf.run(secured_trip, "Oslo", id="by-token-1") == "booked Oslo Inn"
    assert front.tokens == back.tokens == {"Bearer s3cret"}


def _any_job() -> Job:
    return Job("nobody", "secured_trip", 1)


def test_a_move_from_the_command_line_by_tls(temporal: TemporalServer, tmp_path: Path) -> None:
    own, store = Certificate(tmp_path, "server"), f"sqlite:///{tmp_path}/s.db"
    with Holdfast(store) as hf:
        hf.start(secured_trip, "Oslo", id="by-tls-1")
    trusted = {**os.environ, "SSL_CERT_FILE": str(own.authority)}  # as if this machine did
    with behind_tls(temporal.address, own) as front:
        where = ["--engine", "temporal", "--address", front.address, "--queue", "by-tls", "--tls"]
        command = [sys.executable, "-m", "holdfast.cli", "move", "by-tls-1", "--url", store, *where]
        secret = {**trusted, "HOLDFAST_ENGINE_API_KEY": "s3cret"}
        subprocess.run(command, check=True, env=secret)
        engine = temporal_by(front.address, "by-tls", own)
        with Holdfast(store, engine=engine) as hf, working(hf):
            assert hf.resume("by-tls-1") == "booked Oslo Inn"
    assert front.tokens == {"Bearer s3cret"}
