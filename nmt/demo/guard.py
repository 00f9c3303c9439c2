"""The door of the playground's server: which requests are answered at all."""

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

MOST_BYTES = 100_000  # of a request
_CLOSED = ("/upload", "/proxy=")  # parts of Gradio that the page does not use: they keep files, or fetch them


class Guard:
    """Answers requests for this server's own address, from its own page, with little content.

    Under another name, which a site can lead to this address, its pages could read the answers. `names`: those of this
    server, beside addresses in numbers; one that begins with a dot is of a whole domain.
    """

    def __init__(self, app: Any, *, names: tuple[str, ...]) -> None:
        self.app, self.names = app, ("localhost", socket.gethostname(), *names)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = scope["type"] in ("http", "websocket") and self.refusal(scope)
        await (PlainTextResponse(f"{refusal}\n", 403) if refusal else self.app)(scope, receive, send)

    def refusal(self, scope: Any) -> str | None:
        """Why a request is not answered; None if it is."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(urlsplit(f"//{host}").hostname or ""):
            return "this server has another name"
        if urlsplit(headers.get("origin", f"//{host}")).netloc != host:
            return "only this server's own page is answered"
        if any(part in scope["path"] for part in _CLOSED):
            return "this server keeps and fetches no files"
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdigit() or int(length) > MOST_BYTES:
            return f"a request has at most {MOST_BYTES:,} bytes, and says how many"
        return None

    def _is_own(self, name: str) -> bool:
        if any(name == each.lower() or (each[:1] == "." and name.endswith(each)) for each in self.names):
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False
