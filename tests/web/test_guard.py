"""Who is let in: every request that should not be is refused, over real HTTP."""

from __future__ import annotations

import http.client
import json
import stat
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.commands.ui import PageWords
from holdfast.cli.settings import Given
from holdfast.errors import BadInput, TaskNotFound
from holdfast.web import guard
from holdfast.web.guard import entry_for, password_line, read_passwords
from holdfast.web.server import GETS, POSTS
from tests.web.agents import asked_trip, failed_task
from tests.web.serving import Page, serving


@pytest.fixture
def page(hf: Holdfast):
    asked_trip(hf)
    with serving(hf) as page:
        yield page


def asked(page: Page, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """A request with just these headers; '_' stands for '-'. Returns the status and the code."""
    given = {"Host": f"127.0.0.1:{page.entry.port}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    wire = http.client.HTTPConnection("127.0.0.1", page.entry.port, timeout=30)
    try:
        wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            wire.putheader(name, value)
        wire.putheader("Content-Length", "2")
        wire.endheaders(b"{}")
        answer = wire.getresponse()
        body = answer.read()
    finally:
        wire.close()
    try:
        return answer.status, json.loads(body)["error"]["code"]
    except (ValueError, KeyError):
        return answer.status, ""


def test_nothing_is_told_without_the_token(page: Page) -> None:
    for path in (*GETS, "/api/live", "/api/live/tasks/trip-1", "/api/nowhere"):
        assert asked(page, path) == (401, "no_token"), path
    for path in POSTS:
        assert asked(page, path, "POST", Origin=page.url) == (401, "no_token"), path


def test_a_stale_or_wrong_token_is_refused(page: Page) -> None:
    name = page.entry.cookie
    for value in ("", "x", page.entry.token, page.entry.token[:-1]):
        assert asked(page, "/api/me", Cookie=f"{name}={value}") == (401, "stale_token")
        wrong = value[:-1] + "!"
        assert asked(page, "/api/me", Authorization=f"Bearer {wrong}") == (401, "stale_token")
    assert asked(page, "/api/me", Authorization="Basic YWRhOmFkYQ==")[0] == 401
    assert page.bare.get("/?token=stale").status_code == 401


def test_the_token_in_the_address_is_traded_for_a_strict_cookie(page: Page) -> None:
    answer = page.bare.get("/tasks/trip-1@3", params={"token": page.entry.token, "tab": "log"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/tasks/trip-1@3?tab=log"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Path=/" in cookie
    assert page.entry.token not in cookie
    assert page.bare.get("/api/me").json()["user"] == "ada"  # it sends the cookie by itself


def test_a_cookie_for_https_is_never_sent_in_the_clear(hf: Holdfast) -> None:
    with serving(hf, public_url="https://agents.example") as page:
        given = {"token": page.entry.token}
        behind = page.bare.get("/", params=given, headers={"host": "agents.example"})
        assert behind.headers["set-cookie"].endswith("; Secure")
        # Not every browser would send such a cookie to this machine, where there is no https.
        here = page.bare.get("/", params=given)
        assert here.status_code == 303 and "Secure" not in here.headers["set-cookie"]


def test_the_way_back_leads_to_no_other_host(page: Page) -> None:
    answer = page.bare.get(f"{page.url}//evil.example/%2e%2e", params={"token": page.entry.token})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/evil.example")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1:8321.evil", ""]
)
def test_a_foreign_host_is_refused(page: Page, host: str) -> None:
    bearer = f"Bearer {page.entry.token}"
    for path in ("/", "/api/me", "/static/index.js"):
        assert asked(page, path, Host=host, Authorization=bearer)[0] == 403
    assert asked(page, "/api/me", Host=host, Authorization=bearer) == (403, "foreign_host")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1", "file://"])
def test_a_foreign_origin_is_refused(page: Page, origin: str) -> None:
    bearer = f"Bearer {page.entry.token}"
    for method, path in (("GET", "/api/me"), ("POST", "/api/tasks/trip-1/cancel")):
        given = {"Origin": origin, "Authorization": bearer, "Content_Type": "application/json"}
        assert asked(page, path, method, **given) == (403, "foreign_origin")
    cross = {"Sec_Fetch_Site": "cross-site", "Authorization": bearer}
    assert asked(page, "/api/me", **cross) == (403, "foreign_origin")
    assert page.get("tasks", "trip-1")["status"] == "awaiting_user"


def test_with_the_cookie_alone_nothing_is_changed(page: Page) -> None:
    page.bare.get("/", params={"token": page.entry.token})
    cancel = "/api/tasks/trip-1/cancel"
    assert page.bare.post(cancel, json={}).json()["error"]["code"] == "foreign_origin"
    ours = {"origin": page.url}
    form = page.bare.post(cancel, data={"a": "b"}, headers=ours)
    assert form.json()["error"]["code"] == "not_json"
    text = page.bare.post(cancel, content=b"{}", headers={**ours, "content-type": "text/plain"})
    assert text.json()["error"]["code"] == "not_json"
    assert page.get("tasks", "trip-1")["status"] == "awaiting_user"
    assert page.bare.post(cancel, json={}, headers=ours).status_code == 200


def test_other_methods_and_large_bodies_are_refused(page: Page) -> None:
    bearer = f"Bearer {page.entry.token}"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert asked(page, "/api/me", method, Authorization=bearer)[0] == 405
    large = page.http.post(
        "/api/tasks/trip-1/answer", content=b" " * (3 << 20),
        headers={"origin": page.url, "content-type": "application/json"},
    )  # fmt: skip
    assert large.status_code == 413

    def pieces():
        for _ in range(48):
            yield b" " * (1 << 16)

    endless = page.http.post(
        "/api/tasks/trip-1/answer", content=pieces(),
        headers={"origin": page.url, "content-type": "application/json"},
    )  # fmt: skip
    assert endless.status_code == 413


def test_a_read_only_page_changes_nothing(hf: Holdfast) -> None:
    asked_trip(hf)
    failed_task(hf)
    before = {id: hf.task(id).seq for id in ("trip-1", "breaks-1")}
    with serving(hf, read_only=True) as page:
        assert page.get("me")["read_only"]
        for path in POSTS:
            answer = page.http.post(
                path.replace("{id}", "trip-1"), json={}, headers={"origin": page.url}
            )
            assert answer.json()["error"]["code"] == "read_only"
    assert {id: hf.task(id).seq for id in before} == before


def test_every_answer_forbids_what_is_foreign(page: Page) -> None:
    for path in ("/", "/api/me", "/nowhere", "/static/nothing.js", "/api/tasks/trip-1/export"):
        headers = page.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers
    assert "no-store" in page.http.get("/api/me").headers["cache-control"]


@pytest.mark.parametrize(
    "path", ["../server.py", "..%2fserver.py", "%2e%2e/server.py", "/etc/passwd", ".hidden", "a\\b"]
)
def test_no_asset_leads_out_of_its_folder(page: Page, path: str) -> None:
    assert asked(page, f"/static/{path}", Authorization=f"Bearer {page.entry.token}")[0] == 404


def test_too_many_requests_are_told_to_wait(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.guard._REQUESTS_PER_S", 0.1)
    with serving(hf) as page:
        answer = page.http.get("/api/me")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "too_many"


def test_a_stranger_who_asks_too_often_locks_nobody_out(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = guard._Bucket

    def four(per_s: float) -> guard._Bucket:  # and no more come with time
        return real(4, lambda: 0.0) if per_s == guard._REQUESTS_PER_S else real(per_s)

    monkeypatch.setattr(guard, "_Bucket", four)
    with serving(hf) as page:
        paths = ("/", "/api/me", "/static/index.js", "/?token=stale", "/api/me", "/")
        assert [asked(page, path)[0] for path in paths][3:] == [401, 429, 429]
        name, bearer = page.entry.cookie, f"Bearer {page.entry.token}"
        opened = page.bare.get("/", params={"token": page.entry.token})
        assert opened.status_code == 303, "the page can be opened"
        cookie = {"Cookie": f"{name}={page.bare.cookies[name]}"}
        assert asked(page, "/", **cookie)[0] == 200
        assert asked(page, "/api/me", **cookie)[0] == 200
        assert asked(page, "/api/me", Authorization=bearer)[0] == 200
        assert asked(page, "/api/me", Authorization=bearer) == (429, "too_many")


@pytest.mark.parametrize(
    "url", ["postgresql://ada:s3c@ret@db/agents", "postgresql://ada@db/agents?password=s3cret"]
)
def test_no_command_and_no_error_has_the_password_of_the_database(hf: Holdfast, url: str) -> None:
    words, id = PageWords(Given(url=url)), asked_trip(hf)
    state = hf.task(id).state
    for said in (words.command("show", id), words.go_on(state), words.told(TaskNotFound(id))):
        assert "s3c" not in said and "ret@" not in said
    assert "--url postgresql://ada@db/agents" in words.command("show", id)


# Binding elsewhere.


def test_binding_elsewhere_needs_a_way_to_know_people() -> None:
    with pytest.raises(BadInput, match="--password-file"):
        entry_for(host="0.0.0.0", port=1, user="ada")
    with pytest.raises(BadInput, match="--public-url"):
        entry_for(host="127.0.0.1", port=1, user="ada", user_header="X-User")
    with pytest.raises(BadInput, match="must be like"):
        entry_for(
            host="127.0.0.1", port=1, user="ada", user_header="X-User", public_url="agents.example"
        )


def test_a_proxys_header_says_who_it_is(hf: Holdfast) -> None:
    asked_trip(hf)
    with serving(hf, user_header="X-User", public_url="https://agents.example") as page:
        host = {"Host": "agents.example"}
        assert asked(page, "/api/me", **host) == (401, "no_token")
        ours = {**host, "X_User": "carol", "Origin": "https://agents.example"}
        assert asked(page, "/api/me", **ours)[0] == 200
        done = asked(
            page, "/api/tasks/trip-1/pause", "POST", **ours, Content_Type="application/json"
        )
        assert done[0] == 200
    assert "carol" in str(list(hf.task("trip-1").events())[-1])


def test_a_password_file_lets_people_in_by_name(hf: Holdfast, tmp_path: Path) -> None:
    file = tmp_path / "people"
    file.write_text("# who\n" + password_line("carol", "correct horse") + "\n")
    file.chmod(0o600)
    with serving(hf, password_file=file) as page:
        answer = page.bare.get("/api/me")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert page.bare.get("/api/me", auth=("carol", "wrong horse")).status_code == 401
        assert page.bare.get("/api/me", auth=("carol", "correct horse")).json()["user"] == "carol"


def test_guesses_at_passwords_are_slowed_down(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.guard._FAILED_PER_S", 0.1)
    file = tmp_path / "people"
    file.write_text(password_line("carol", "correct horse") + "\n")
    file.chmod(0o600)
    with serving(hf, password_file=file) as page:
        assert page.bare.get("/api/me", auth=("carol", "wrong horse")).status_code == 429


def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "people"
    file.write_text(password_line("carol", "correct horse"))
    file.chmod(0o644)
    with pytest.raises(BadInput, match="can be read by others"):
        read_passwords(file)
    file.chmod(stat.S_IRUSR)
    assert list(read_passwords(file)) == ["carol"]
    for bad in ("", "carol:plain", "carol:zz:zz", "a:b:c:d"):
        file.chmod(0o600)
        file.write_text(bad)
        with pytest.raises(BadInput):
            read_passwords(file)
    for user, password in (("", "long enough"), ("a:b", "long enough"), ("carol", "short")):
        with pytest.raises(BadInput):
            password_line(user, password)
