"""Serves a site on this machine only, for browsers that open no files (a remote desktop, a forwarded port)."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pkb.types.errors import UserError

LOOPBACK = "127.0.0.1"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass

    def list_directory(self, path: Any) -> None:
        """A site has pages, no listings."""
        self.send_error(404)

    def end_headers(self) -> None:
        # A rebuilt report must not be mixed with what the browser kept of the old one.
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()


def open_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Bound and listening; the caller runs `serve_forever`. Port 0 takes a free one."""
    if not (folder / "index.html").is_file():
        raise UserError(f"{folder} holds no report", "pkb report RUN --out DIR writes one")
    try:
        return ThreadingHTTPServer((LOOPBACK, port), partial(_Quiet, directory=str(folder)))
    except OSError as error:
        raise UserError(f"cannot listen on port {port}: {error.strerror}", "give another --port") from error
    except OverflowError:
        raise UserError(f"--port {port} is no port", "0 to 65535") from None
