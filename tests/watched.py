"""Watch what a command does to the machine: writes, removals, connections and processes outside given folders."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# The events of Python's audit hooks, and which of their arguments are paths that are changed
_PATHS = {
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.chown"), (0,)),
    **dict.fromkeys(("os.utime", "os.mknod", "os.mkfifo", "shutil.rmtree"), (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink", "shutil.move"), (0, 1)),
    **dict.fromkeys(("shutil.copyfile", "shutil.copytree"), (1,)),
}
_FOLLOW = ("open", "os.truncate", "os.chmod", "os.chown", "os.utime", "shutil.copyfile")  # links
_NEVER = ("socket.connect", "socket.sendto", "socket.bind", "urllib.Request", "sqlite3.connect", "os.system",
          "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn", "pty.spawn")  # fmt: skip
_allowed: list[str] | None = None  # None: nothing is watched
_seen: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event == "open":
        path, _, flags = arguments
        changed = [path] if isinstance(flags, int) and flags & _WRITES else []
    elif event in _PATHS:
        changed = [arguments[place] for place in _PATHS[event]]
    elif event in _NEVER or (event == "subprocess.Popen" and list(arguments[1])[:1] != ["git"]):
        _seen.append(f"{event} {arguments}")
        raise PermissionError(f"{event} is not allowed here")
    else:
        return
    for path in changed:
        if path is None or isinstance(path, int):  # a file that is open
            continue
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
        place = os.path.join(os.path.realpath(folder), name)
        if event in _FOLLOW:
            place = os.path.realpath(place)
        if place != os.devnull and not os.path.join(place, "").startswith(tuple(_allowed)):
            _seen.append(f"{event} {path}")
            raise PermissionError(f"{event} {path} is not allowed here")


@contextlib.contextmanager
def watched(*folders: Path) -> Iterator[list[str]]:
    """What was done outside the folders while the block ran, which failed: to be empty at its end."""
    global _allowed
    _hook()
    _seen.clear()
    _allowed = [os.path.join(os.path.realpath(each), "") for each in folders]
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield _seen
    finally:
        _allowed, sys.dont_write_bytecode = None, before


_hooked: list[bool] = []


def _hook() -> None:
    """A hook cannot be removed: there is one, which looks only while something is watched."""
    if not _hooked:
        # Folders that a library makes or tries once in a process
        tempfile.gettempdir()
        matplotlib.get_configdir()
        matplotlib.get_cachedir()
        sys.addaudithook(_note)
        _hooked.append(True)
