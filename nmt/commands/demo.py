"""Serve the playground: the page of `export.py format=web`, made once in the run directory."""

import ipaddress
import json
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from omegaconf import DictConfig

from nmt.atomic import new_folder, read_at_most
from nmt.checkpoint import files_to_average, find_checkpoint
from nmt.config.types import as_list, say
from nmt.errors import UserError, WriteError, command
from nmt.run.paths import newest_run, score_files

MADE_FROM = "made_from"  # names files of this machine: no suffix of `TYPES`, so it is not handed out
# About 75 BLEU in a minute on two cores
SMALL = ["train", "trainer.max_time=00:00:01:00", "data.max_words=12", "data.num_train=8000", "data.max_tokens=1024",
         "model.size=96", "model.dropout=0.1", "optimizer.lr=0.004"]  # fmt: skip
TYPES = {
    ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
    ".json": "application/json", ".wasm": "application/wasm", ".onnx": "application/octet-stream",
}  # fmt: skip


def demo(cfg: DictConfig) -> None:
    """Serve the page of one run, or of several side by side, until interrupted."""
    with bind(cfg.host, cfg.port) as server:  # a port that is taken is refused before the work
        server.folder = page_of(cfg)
        print(f"the playground is at http://{cfg.host}:{cfg.port}, Ctrl-C ends it", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nended", flush=True)


def newest_or_small_run(logs: Path) -> Path:
    """The newest finished run; without one, at a terminal, a small one that is trained if the person agrees."""
    try:
        return newest_run(logs)
    except UserError as error:
        if not sys.stdin.isatty():
            raise UserError(f"{error}; `nmt {' '.join(SMALL)}` trains a small one for a minute") from error
        print(f"{logs}/ has no finished run. Train a small one for a minute? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() != "y":
            raise
    subprocess.run([sys.executable, "-m", "nmt.commands", *SMALL], check=False)
    return newest_run(logs)


def page_of(cfg: DictConfig) -> Path:
    """The folder of the page, in the directory of the first run; it is made again if its origin has changed."""
    from nmt.config.build import build
    from nmt.export import web  # its packages are an extra
    from nmt.run.run import Run

    paths = [Path(each) for each in as_list(cfg.run)]
    runtime = None if cfg.runtime is None else Path(cfg.runtime)
    web.check_runtime(runtime)
    decoding = build(cfg.decoding, "decoding")
    folder, made_from = paths[0] / "page", {"decoding": asdict(decoding), "files": _origin(cfg, paths)}
    try:
        is_made = json.loads(read_at_most(folder / MADE_FROM, 2**20)) == made_from
    except (OSError, ValueError, RecursionError):
        is_made = False
    try:
        if not is_made:
            print(f"making the page of {', '.join(map(str, paths))}", flush=True)
            weights = {key: cfg[key] for key in ("checkpoint", "average", "trusted")}
            runs = [Run.load(path, device="cpu", **weights) for path in paths]
            with new_folder(folder) as new:
                web.write(runs, new, decoding=decoding)
                (new / MADE_FROM).write_text(json.dumps(made_from), "utf-8")
                shutil.rmtree(folder, ignore_errors=True)
        web.write_page(folder, runtime)  # scripts of this version, whoever made the folder
    except WriteError as error:
        there = command("export", [f"run={say(cfg.run)}", "format=web", "output=DIR"])
        raise UserError(f"{error}, or use {there} and python -m http.server --directory DIR") from error
    return folder


def _origin(cfg: DictConfig, paths: list[Path]) -> dict[str, list[int]]:
    """Size and time of the files that the page is made from."""
    files = []
    for path in paths:
        files += [score_files(path, "test")[0], path / "alignments" / "history.npz"]
        if cfg.average is not None:
            files += files_to_average(path, cfg.average)
        else:
            files.append(find_checkpoint(path, cfg.checkpoint))
    found = {str(each.resolve()): each.stat() for each in files if each.exists()}
    return {name: [about.st_size, about.st_mtime_ns] for name, about in found.items()}


class PageServer(ThreadingHTTPServer):
    """Hands out the files of a folder, for requests by an address that it listens on."""

    daemon_threads = True
    folder: Path

    def knows(self, name: str) -> bool:
        """True if a request's Host is a name of this server: another name can lead a foreign site's page here."""
        host = str(self.server_address[0])
        if host != "0.0.0.0":
            return name in (host, "localhost")
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return name in ("localhost", socket.gethostname().lower())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(SimpleHTTPRequestHandler):
    """Answers GET and HEAD for the files of a page."""

    extensions_map = TYPES
    timeout = 30  # seconds without a byte
    server: PageServer

    def translate_path(self, path: str) -> str:
        """The file of an address; an empty name, which is not found, if the page has no such file."""
        folder = self.server.folder.resolve()
        name = unquote(path.partition("?")[0]).strip("/") or "index.html"
        files = {each.relative_to(folder).as_posix(): each.resolve() for each in folder.rglob("*.*")}
        file = files.get(name, folder)
        return str(file) if file.is_relative_to(folder) and file.suffix in TYPES else ""

    def send_head(self) -> Any:
        """Refuse a request for another server."""
        if self.server.knows(self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")):
            return super().send_head()
        return self.send_error(403, "this server has another name")

    def end_headers(self) -> None:
        """Let a page that was made again be loaded again."""
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of requests."""


def bind(host: str, port: int) -> PageServer:
    """A server that listens. Raises UserError if it cannot."""
    try:
        return PageServer((host, port), Handler)
    except OSError as error:
        raise UserError(f"host={host} port={port}: {error.strerror}: give another one") from error


main = demo
