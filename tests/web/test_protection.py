"""What is refused whatever it asks for, and what every answer bears."""

import socket
from types import SimpleNamespace

import pytest
from aiohttp import web
from web.serving import Served

from sparklog.web import asked
from sparklog.web.protection import TOKEN, check_token

pytestmark = pytest.mark.integration


def test_a_name_that_was_pointed_here_is_refused(browser):
    for path in ("/", "/api/cluster", "/static/app.js"):
        assert browser.get(path, Host="evil.example:80").status == 421
    assert browser.get("/api/cluster", Host=browser.host.replace("127.0.0.1", "localhost")).status == 200


def test_every_answer_forbids_what_a_browser_might_do_with_it(browser):
    for path in ("/", "/static/app.js", "/api/cluster", "/api/topic?name=none", "/nowhere"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("sent", ["<h1>", "GET / HTTP/9.9", "GET /\0 HTTP/1.1", "GET / HTTP/1.1\r\nContent-Length: x"])
def test_the_answer_to_what_is_no_request_bears_the_same(browser, sent):
    host, port = browser.host.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(f"{sent}\r\n\r\n".encode())
        with peer.makefile("rb") as answer:
            head = answer.read().decode()
    assert head.startswith("HTTP/1.")
    assert " 400 " in head.splitlines()[0]
    assert "\r\nContent-Security-Policy: default-src 'none'" in head
    assert "\r\nX-Content-Type-Options: nosniff" in head


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://{host}"}, 403),
        ({"Origin": "{host}"}, 403),
        ({"Origin": "http://{host}/"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_a_request_that_another_page_could_send_is_refused(browser, headers, status):
    headers = {name: value.format(host=browser.host) for name, value in headers.items()}
    assert browser.post("/api/logout", **headers).status == status


def test_another_page_may_not_even_read(browser):
    assert browser.get("/api/cluster", Origin="http://evil.example").status == 403
    assert browser.get("/api/records?topic=t", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert browser.get("/", **{"Sec-Fetch-Site": "cross-site"}).status == 200


def test_its_own_page_may_ask(browser):
    assert browser.post("/api/logout", Origin=f"http://{browser.host}").status == 200


def test_files_beside_the_page_are_not_served(browser):
    for path in ("/static/", "/static/../server.py", "/static/%2e%2e/server.py", "/server.py"):
        assert browser.get(path).status == 404


def test_what_is_no_json_is_refused(browser, bootstrap):
    with Served({"bootstrap.servers": bootstrap}, allow_changes=True) as served:
        for body in (b"{", b"[]", b"\xff"):
            headers = {"Content-Type": "application/json"}
            answer = served.browser().request("POST", "/api/login", body, **headers)
            assert answer.status == 400
            assert "Traceback" not in answer.body


def test_a_proxys_name_is_ours_where_it_was_told(bootstrap):
    with Served({"bootstrap.servers": bootstrap}, origin="https://Log.Example") as served:
        browser = served.browser()
        assert browser.get("/api/session", Host="log.example").status == 200
        assert browser.post("/api/logout", Host="log.example", Origin="https://log.example").status == 200
        assert browser.post("/api/logout", Host="log.example", Origin="http://log.example").status == 403


def test_what_is_no_origin_is_refused(browser):
    answer = browser.get("/api/cluster", Origin="http://[")
    assert (answer.status, answer.json["error"]["code"]) == (403, "FOREIGN_ORIGIN")


LOGINS = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def test_a_body_that_never_ends_is_not_waited_for(monkeypatch):
    """Or some hundred connections would keep everybody else out."""
    monkeypatch.setattr(asked, "BODY_S", 0.01)
    head = "POST /api/login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{"
    with Served(LOGINS) as served:
        host, port = served.host.split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(head.format(served.host).encode())
            assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("body", "charset"),
    [
        ("{}-", "; charset=punycode"),  # what it is in UTF-8; to read that charset takes a minute for each megabyte
        ('{"user": 1}', "; charset=none"),
        ("[" * 100_000, ""),
    ],
)
def test_a_body_that_nobody_should_send_is_refused_at_once(body, charset):
    with Served(LOGINS) as served:
        browser = served.browser()
        answer = browser.request("POST", "/api/login", body, Content_Type=f"application/json{charset}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST")
    assert ("must be given" in answer.json["error"]["message"]) == ("none" in charset)


def test_tokens_are_compared_in_a_time_that_tells_nothing_of_them(compared):
    with pytest.raises(web.HTTPForbidden):
        check_token(SimpleNamespace(headers={TOKEN: "s3crex"}), "s3cret")
    assert compared == [(b"s3crex", b"s3cret")]
