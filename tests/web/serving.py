"""The server of the page on a loop of its own, and a browser's requests to it, with whatever headers a test wants."""

import http.client
import json
from types import SimpleNamespace

from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.web.server import WebServer
from sparklog.web.settings import WebSettings


class Served:
    """``with`` it: the page of a cluster, by a client's settings. It gives no answer of the brokers twice."""

    def __init__(self, properties, clock=None, **settings):
        self.server = WebServer(WebSettings.of(properties, fresh_s=0.0, **settings), clock)
        self._loop = LoopThread("sparklog web test")

    def __enter__(self):
        self._loop.run(self.server.start())
        return self

    def __exit__(self, *_):
        self._loop.run(self.server.close())
        self._loop.close()

    def run(self, work):
        return self._loop.run(work)

    @property
    def host(self):
        return str(self.server.address)

    def browser(self):
        """One with no cookies yet."""
        return Browser(self.host)


class Browser:
    """Sends its cookie and its session's token, as the page does."""

    def __init__(self, host):
        self.host = host
        self.cookie = ""
        self.token = ""

    def get(self, path, **headers):
        return self.request("GET", path, None, **headers)

    def rows(self, path):
        """The JSON answer of what must succeed."""
        answer = self.get(path)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path, told=None, **headers):
        given = {"Content-Type": "application/json", "X-Sparklog-Token": self.token}
        return self.request("POST", path, json.dumps(told or {}), **(given | headers))

    def request(self, method, path, body, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            headers.setdefault("Cookie", self.cookie)
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return SimpleNamespace(
            status=answer.status, headers=answer.headers, body=text, json=json.loads(text) if is_json else None
        )

    def log_in(self, user, password):
        answer = self.post("/api/login", {"user": user, "password": password})
        if answer.status == 200:
            self.cookie = answer.headers["Set-Cookie"].split(";")[0]
            self.token = answer.json["token"]
        return answer
