"""Commands without what only Unix has, as a stand-in for Windows.

    python -m tests.bare COMMAND ARGUMENTS [-- COMMAND ARGUMENTS …]

Modules and functions of Unix alone are hidden from the package (libraries ask which system it is); new processes are
spawned. A text file without a named encoding, a file name that Windows forbids, and the removal or renaming of an open
file end the process.
"""

import builtins
import itertools
import multiprocessing
import os
import runpy
import signal
import sys
import types
import warnings
from pathlib import Path
from typing import Any

MODULES = frozenset(
    "crypt fcntl grp nis ossaudiodev pty pwd readline resource spwd syslog termios tty".split()
)
HIDDEN = frozenset(  # of the modules os and signal
    """
    SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pause pthread_kill
    pthread_sigmask setitimer sigwait O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC chown chroot
    fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid getuid killpg lchown
    mkfifo mknod nice openpty posix_fadvise pread pwrite sched_getaffinity sched_setaffinity setpgid setsid setuid
    statvfs sync sysconf uname wait3 wait4
    """.split()
)

real_import = builtins.__import__


class Bare(types.ModuleType):
    """A module that lacks, for the package's own files, what Windows lacks; libraries ask which system it is."""

    def __getattribute__(self, name: str) -> Any:
        if name in HIDDEN and is_ours(sys._getframe(1).f_globals):
            raise AttributeError(f"{name} is only on Unix")
        return super().__getattribute__(name)


def is_ours(names: Any) -> bool:
    return str((names or {}).get("__name__")).partition(".")[0] == "nmt"


def import_bare(name: str, globals: Any = None, *more: Any, **named: Any) -> Any:
    if name in MODULES and is_ours(globals):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return real_import(name, globals, *more, **named)


def hide() -> None:
    builtins.__import__ = import_bare
    os.__class__ = signal.__class__ = Bare
    multiprocessing.set_start_method("spawn")


def held_open() -> set[str]:
    """The files that this process has open or mapped; none but on Linux."""
    descriptors, maps = Path("/proc/self/fd"), Path("/proc/self/maps")
    if not maps.exists():
        return set()
    found = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text("utf-8").splitlines()}
    for each in os.listdir(descriptors):
        if (descriptors / each).is_symlink():
            found.add(os.readlink(descriptors / each))
    return found


def guard(event: str, arguments: tuple[Any, ...]) -> None:
    """End the process at what Windows refuses."""
    if event in ("os.rename", "os.remove"):
        paths = arguments[:2] if event == "os.rename" else arguments[:1]
        refused = [str(path) for path in paths if os.path.abspath(os.fsdecode(path)) in held_open()]
        reason = "is open"
    elif event in ("open", "os.mkdir") and isinstance(arguments[0], str | bytes | os.PathLike):
        refused = [name for name in [Path(os.fsdecode(arguments[0])).name] if set(name) & set('<>:"|?*\\')]
        reason = "is no name on Windows"
    else:
        return
    if refused and not any(part in str(arguments[0]) for part in ("/proc/", "site-packages")):
        print(f"{event}: {refused[0]} {reason}", file=sys.stderr, flush=True)
        os._exit(3)


def main() -> None:
    hide()
    warnings.filterwarnings("error", category=EncodingWarning, module=r"nmt\.")
    sys.addaudithook(guard)
    for _, line in itertools.groupby(sys.argv[1:], lambda word: word == "--"):
        name, *arguments = line
        script = Path(__file__).resolve().parents[1] / "scripts" / f"{name}.py"
        sys.argv = [str(script), *arguments]
        if name == "demo":  # it would not end
            import nmt.commands.demo
            import nmt.export.web  # noqa: F401
        elif name != "--":
            runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
