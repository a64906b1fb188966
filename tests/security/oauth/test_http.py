"""What a server of OAuth answers, and what is done with an answer that is none."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sparklog.errors import ConfigError
from sparklog.security.oauth.http import EndpointFailed, check_url, fetch


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer()

    def answer(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        status, _, size = self.path.partition("?")[0].strip("/").partition("/")
        body = b"x" * int(size or 2)
        self.send_response(int(status))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/200")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(HTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked, self.bodies = [], []
        self.url = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture(scope="module")
def server():
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_an_answer_is_given_as_it_is(server):
    assert fetch(f"{server.url}/200") == b"xx"
    assert fetch(f"{server.url}/200/5", body=b"a=b", headers={"Authorization": "Basic x"}) == b"xxxxx"
    assert server.bodies[-1] == b"a=b"
    assert server.asked[-1] == ("/200/5", "Basic x")


@pytest.mark.parametrize(
    ("status", "is_transient"), [(400, False), (401, False), (429, True), (500, True), (503, True)]
)
def test_an_error_tells_its_status_and_no_secret(server, status, is_transient):
    with pytest.raises(EndpointFailed, match=f"HTTP status {status}") as caught:
        fetch(f"{server.url}/{status}?key=hidden", body=b"hidden", headers={"Authorization": "hidden"})
    assert caught.value.is_transient is is_transient
    assert "hidden" not in str(caught.value)


def test_a_redirection_is_not_followed(server):
    count = len(server.asked)
    with pytest.raises(EndpointFailed, match="HTTP status 302"):
        fetch(f"{server.url}/302", body=b"secret")
    assert len(server.asked) == count + 1


def test_an_answer_without_end_is_not_read(server):
    assert len(fetch(f"{server.url}/200/{1 << 20}")) == 1 << 20
    with pytest.raises(EndpointFailed, match="more than 1048576 bytes"):
        fetch(f"{server.url}/200/{(1 << 20) + 1}")


def test_a_server_that_is_not_there_may_come_back():
    with pytest.raises(EndpointFailed, match="cannot be asked") as caught:
        fetch("http://user:hidden@127.0.0.1:9/keys", timeout=5.0)
    assert caught.value.is_transient
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "issuer/keys", "ftp://issuer/keys", "file:///keys", "http:///keys"])
def test_other_addresses_are_refused(url):
    with pytest.raises(ConfigError, match="a setting"):
        check_url("a setting", url)
    check_url("a setting", "https://issuer/keys")
