"""A directory of HDFS as a place for files, over WebHDFS: HTTP, without Java and without Hadoop's libraries.

The NameNode is asked, and for a file's bytes names a DataNode (status 307), which is asked then. A file is written
beside its name and renamed: HDFS renames to no name that is taken. What is finished has been taken by as many DataNodes
as ``dfs.namenode.replication.min`` says; these have it on their disks where ``dfs.datanode.synconclose`` is set.

Source: Hadoop 3.5, "WebHDFS REST API".
"""

from __future__ import annotations

import getpass
import json
import os
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlencode, urlsplit
from xml.etree import ElementTree

from sparklog.errors import ConfigError
from sparklog.storage.place import PART_SUFFIX, Listed, NewFile, Place, checked, part_of

_NAMENODE_PORT = 9870
"""The usual one, of ``dfs.namenode.http-address``."""
_TIMEOUT_S = 120
_PIECE = 1 << 20
_REDIRECT = 307
_KNOWN: dict[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AccessControlException": PermissionError,
}


class WebHdfs(Place):
    """The directory that the URI names. It is made when the first file is."""

    def __init__(self, uri: str) -> None:
        """Raises ConfigError for a URI without a host or a path."""
        super().__init__(uri)
        parts = urlsplit(uri)
        if not parts.hostname or not parts.path.strip("/"):
            raise ConfigError(f"{uri}: write webhdfs://NAMENODE:{_NAMENODE_PORT}/PATH")
        port = _http_port() if parts.scheme == "hdfs" else parts.port or _NAMENODE_PORT
        self._is_secure = parts.scheme == "swebhdfs"
        self._namenode = f"{parts.hostname}:{port}"
        self._root = unquote(parts.path).rstrip("/")
        self._user = parts.username or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def list(self, directory: str) -> Listed:
        try:
            answer = self._ask("GET", directory, "LISTSTATUS")
        except FileNotFoundError:
            return Listed({}, ())
        found = [each for each in answer["FileStatuses"]["FileStatus"] if not each["pathSuffix"].endswith(PART_SUFFIX)]
        return Listed(
            {each["pathSuffix"]: int(each["length"]) for each in found if each["type"] == "FILE"},
            tuple(sorted(each["pathSuffix"] for each in found if each["type"] == "DIRECTORY")),
        )

    def open(self, path: str) -> IO[bytes]:
        connection, response = self._send("GET", self._url(path, "OPEN"))
        if response.status == _REDIRECT:
            connection.close()
            connection, response = self._send("GET", _location(response, path))
        if response.status != 200:
            _take(connection, response, path)
        return BufferedReader(_Stream(connection, response), _PIECE)

    def create(self, path: str) -> NewFile:
        part = part_of(path)
        connection, response = self._send("PUT", self._url(part, "CREATE", overwrite="false"))
        if response.status != _REDIRECT:
            _take(connection, response, path)
            raise OSError(f"{self.uri}/{path}: the NameNode names no DataNode")
        connection.close()
        return _NewHdfsFile(self, part, path, _location(response, path))

    def remove(self, path: str) -> None:
        self._ask("DELETE", path, "DELETE")

    def rename(self, old: str, new: str) -> bool:
        """Give a file a name that is free; whether it was, and the file there."""
        return bool(self._ask("PUT", old, "RENAME", destination=f"{self._root}/{checked(new)}")["boolean"])

    def _put(self, part: str, path: str) -> bool:
        return self.rename(part, path)

    def _ask(self, method: str, path: str, operation: str, **parameters: str) -> Any:
        """What the NameNode answers, of JSON."""
        connection, response = self._send(method, self._url(path, operation, **parameters))
        return json.loads(_take(connection, response, path) or b"null")

    def _url(self, path: str, operation: str, **parameters: str) -> str:
        where = quote(f"/webhdfs/v1{self._root}/{checked(path)}".rstrip("/"))
        asked = urlencode({"op": operation, "user.name": self._user, **parameters})
        return f"{self._scheme}://{self._namenode}{where}?{asked}"

    @property
    def _scheme(self) -> str:
        return "https" if self._is_secure else "http"

    def _send(self, method: str, url: str) -> tuple[HTTPConnection, HTTPResponse]:
        connection = connect(url)
        try:
            connection.request(method, _target(url))
            return connection, connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise _unreached(self.uri, url, error) from error


class _NewHdfsFile:
    """The body of one request to a DataNode, sent in chunks as it comes."""

    def __init__(self, place: WebHdfs, part: str, path: str, url: str) -> None:
        self._place = place
        self._part = part
        self._path = path
        self._url = url
        self._connection = connect(url)
        try:
            self._connection.putrequest("PUT", _target(url))
            self._connection.putheader("Content-Type", "application/octet-stream")
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()
        except (OSError, HTTPException) as error:
            self.discard()
            raise _unreached(place.uri, url, error) from error

    def write(self, data: bytes | bytearray | memoryview, /) -> int:
        view = memoryview(data).cast("B")
        if len(view):
            self._send(b"%x\r\n" % len(view))
            self._send(view)
            self._send(b"\r\n")
        return len(view)

    def _send(self, data: bytes | memoryview) -> None:
        try:
            self._connection.send(data)
        except (OSError, HTTPException) as error:
            raise _unreached(self._place.uri, self._url, error) from error

    def finish(self) -> None:
        self._send(b"0\r\n\r\n")
        try:
            response = self._connection.getresponse()
        except (OSError, HTTPException) as error:
            raise _unreached(self._place.uri, self._url, error) from error
        _take(self._connection, response, self._path)
        if not self._place.rename(self._part, self._path):
            raise FileExistsError(f"{self._place.uri}/{self._path} is there already")

    def discard(self) -> None:
        self._connection.close()
        with suppress(OSError):
            self._place.remove(self._part)


class _Stream(RawIOBase):
    """The body of an answer, and its connection, which ends with it. Too short a body raises OSError."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            size = self._response.readinto(buffer)
        except HTTPException as error:
            raise OSError(f"the DataNode hung up: {error!r}") from error
        if not size and self._response.length:
            raise OSError(f"the DataNode hung up {self._response.length} bytes before the end")
        return size

    def close(self) -> None:
        self._connection.close()
        super().close()


def _http_port() -> int:
    """The NameNode's port for HTTP, as Hadoop's settings in ``HADOOP_CONF_DIR`` say; the usual one if they do not."""
    path = Path(os.environ.get("HADOOP_CONF_DIR", ""), "hdfs-site.xml")
    try:
        for each in ElementTree.parse(path).iter("property") if path.is_absolute() else ():
            if each.findtext("name") == "dfs.namenode.http-address":
                return int((each.findtext("value") or "").rpartition(":")[2])
    except FileNotFoundError:
        pass
    except (ElementTree.ParseError, ValueError) as error:
        text = f"{path} does not say where the NameNode listens (dfs.namenode.http-address): {error}"
        raise ConfigError(text) from error
    return _NAMENODE_PORT


def connect(url: str) -> HTTPConnection:
    """A connection to the host that a URL names; nobody is asked yet."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _location(response: HTTPResponse, path: str) -> str:
    location = response.getheader("Location")
    if location is None:
        raise OSError(f"{path}: the NameNode names no DataNode")
    return location


def _take(connection: HTTPConnection, response: HTTPResponse, path: str) -> bytes:
    """The body of a good answer. Raises what a bad one says."""
    try:
        body = response.read()
    except HTTPException as error:
        raise OSError(f"{path}: the answer broke off: {error!r}") from error
    finally:
        connection.close()
    if response.status >= 300:
        raise _refusal(response, body, path)
    return body


def _refusal(response: HTTPResponse, body: bytes, path: str) -> OSError:
    try:
        told = json.loads(body)["RemoteException"]
        name, text = str(told["exception"]), str(told["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        name, text = "", f"HTTP status {response.status} {response.reason}"
    return _KNOWN.get(name, OSError)(f"{path}: {text}")


def _unreached(uri: str, url: str, error: Exception) -> OSError:
    host = urlsplit(url).netloc
    return OSError(f"{uri}: {host} cannot be asked by HTTP: {error}; is it a NameNode's or DataNode's HTTP address?")
