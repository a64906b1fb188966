"""A real Chromium without a window, driven by its own protocol (Chrome DevTools)."""

import asyncio
import base64
import json
import subprocess
from pathlib import Path

import aiohttp

from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.testing.eventually import eventually

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--force-prefers-reduced-motion", "--hide-scrollbars", "--remote-debugging-port=0", "--window-size=1280,900",
)  # fmt: skip
PATIENCE_S = 60


class Chromium:
    """``with`` it; ``page()`` is a tab with cookies of its own."""

    def __init__(self, directory):
        self._profile = Path(directory)
        self._loop = LoopThread("chromium")
        self._waiting = {}
        self._pages = {}
        self._number = 0

    def __enter__(self):
        command = ["chromium", *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        with (self._profile / "log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            port, path = eventually(self._port, timeout=PATIENCE_S)
            self._loop.run(self._connect(f"ws://127.0.0.1:{port}{path}"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.run(self._hang_up())
        self._loop.close()

    def page(self):
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log"):
            page.ask(f"{domain}.enable")
        return page

    def ask(self, method, session=None, **parameters):
        return self._loop.run(self._ask(method, session, parameters), PATIENCE_S)

    def _port(self):
        told = self._profile / "DevToolsActivePort"
        assert self._process.poll() is None, (self._profile / "log").read_text()
        lines = told.read_text().split() if told.exists() else []
        return lines if len(lines) == 2 else None

    async def _connect(self, url):
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(url, max_msg_size=0)
        self._reading = asyncio.create_task(self._read())

    async def _hang_up(self):
        if hasattr(self, "_reading"):
            await asyncio.wait([self._reading])
            await self._http.close()

    async def _ask(self, method, session, parameters):
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        asked = {"id": number, "method": method, "params": parameters}
        await self._socket.send_str(json.dumps(asked | ({"sessionId": session} if session else {})))
        told = await answer
        assert "error" not in told, (method, told["error"])
        return told["result"]

    async def _read(self):
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
            elif told.get("sessionId") in self._pages:
                self._pages[told["sessionId"]].heard(told["method"], told["params"])


class Page:
    """A tab. ``complaints`` are errors of scripts and of the Content-Security-Policy."""

    def __init__(self, browser, session, context):
        self._browser = browser
        self._session = session
        self._context = context
        self.complaints = []

    def ask(self, method, **parameters):
        return self._browser.ask(method, self._session, **parameters)

    def heard(self, method, told):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"].get("exception", told)))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def go(self, url):
        self.ask("Page.navigate", url=url)

    def run(self, script):
        """The value of an expression; a promise is awaited."""
        told = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def wait(self, script):
        """Until the expression is true."""
        try:
            eventually(lambda: self.run(f"!!({script})"), timeout=PATIENCE_S, what=script)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page: {self.text()}; it complains: {self.complaints}") from error

    def text(self):
        return self.run("document.body ? document.body.innerText : ''")

    def wait_text(self, text):
        self.wait(f"(document.body?.innerText ?? '').includes({json.dumps(text)})")

    def press(self, key, code=None, text=None):
        """A key, as a person presses it."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                     windowsVirtualKeyCode=KEYS.get(key, 0), **more)  # fmt: skip

    def write(self, text):
        """Text into what has the focus."""
        self.ask("Input.insertText", text=text)

    def size(self, width, height, *, mobile=False):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        """``dark`` or ``light``."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        told = self.ask("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(told["data"]))

    def close(self):
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)


KEYS = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}
