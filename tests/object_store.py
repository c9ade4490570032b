"""Object storage with latency: a server on loopback that answers like S3, each request after 50 ms."""

from __future__ import annotations

import http.server
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LATENCY = 0.05


class Handler(http.server.BaseHTTPRequestHandler):
    """HEAD and GET of objects, whole or in ranges, below a folder; counts requests."""

    protocol_version = "HTTP/1.1"
    folder = Path()
    latency = LATENCY
    requests = 0

    def do_HEAD(self) -> None:
        """What an object is."""
        self._answer(with_body=False)

    def do_GET(self) -> None:
        """An object or a part of it."""
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        type(self).requests += 1
        time.sleep(self.latency)
        path = self.folder / unquote(urlsplit(self.path).path).strip("/").partition("/")[2]
        if not path.is_file():
            self._send(404, b"", {})
            return
        size = path.stat().st_size
        asked = self.headers.get("Range")
        first, last = 0, size - 1
        if asked is not None:
            first, last = (int(part) for part in asked.removeprefix("bytes=").split("-"))
            last = min(last, size - 1)
        headers = {"ETag": f'"{size:x}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        if asked is not None:
            headers["Content-Range"] = f"bytes {first}-{last}/{size}"
        body = b""
        if with_body:
            with path.open("rb") as stream:
                stream.seek(first)
                body = stream.read(last - first + 1)
        self._send(200 if asked is None else 206, body, headers, last - first + 1)

    def _send(self, status: int, body: bytes, headers: dict[str, str], length: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class Server(http.server.ThreadingHTTPServer):
    """A thread for each connection; more may be opened at once than the five that wait by default."""

    daemon_threads = True
    request_queue_size = 128


def serve(folder: Path, latency: float = LATENCY) -> Server:
    """A server of the files of a folder, whatever the bucket; it runs in a thread."""
    handler = type("_Handler", (Handler,), {"folder": folder, "latency": latency})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def settings(port: int) -> dict[str, str]:
    """The environment of a process that uses the server."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
