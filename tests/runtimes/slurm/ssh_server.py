"""A real sshd on this machine for tests, for the user who runs them: keys, port and configuration of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from airflow_training.agent.proc import die_with_parent, parent_of
from airflow_training.settings import user_name
from tests.ports import free_port
from tests.runtimes.slurm.lab import SEARCH
from tests.waiting import wait_until

NEEDED = ("sshd", "ssh", "ssh-keygen")


def missing_ssh() -> str:
    """Return why there can be no login here; "" where there can be one."""
    absent = [name for name in NEEDED if shutil.which(name, path=SEARCH) is None]
    return f"OpenSSH is not installed: no {', '.join(absent)}" if absent else ""


@dataclass
class SshServer:
    """A login node, which can be away for a while."""

    folder: Path
    env: Mapping[str, str]
    """Of those who log in."""
    port: int = field(default_factory=free_port)
    _daemon: subprocess.Popen[bytes] | None = None

    @property
    def key(self) -> Path:
        """Return the private key of the only user."""
        return self.folder / "user_key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def host_key(self) -> str:
        return (self.folder / "host_key.pub").read_text().rpartition(" ")[0]

    def address(self, shared: Path, **more: object) -> str:
        """Return what a job names as its connection; runs lie in `shared`."""
        query = {
            "key": self.key,
            "known_hosts": self.known_hosts,
            "python": sys.executable,
            **more,
        }
        words = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
        return f"ssh://{user_name()}@127.0.0.1:{self.port}{quote(str(shared))}?{words}"

    def make_key(self, name: str) -> Path:
        path = self.folder / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True
        )
        return path

    def start(self) -> None:
        """Return once it listens."""
        if not self.key.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in ("host_key", "user_key"):
                self.make_key(name)
            self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self.host_key}\n")
        if os.getuid() == 0:  # where sshd puts its unprivileged half
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        values = " ".join(f'"{name}={value}"' for name, value in self.env.items())
        conf = self.folder / "sshd_config"
        conf.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host_key\n"
            f"AuthorizedKeysFile {self.folder}/user_key.pub\nAllowUsers {user_name()}\n"
            "PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"SetEnv {values}\n"
        )
        program = shutil.which("sshd", path=SEARCH)
        assert program is not None
        with (self.folder / "sshd.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [program, "-D", "-e", "-f", str(conf)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no other thread of the tests starts one
            )
        wait_until(self._listens, "sshd listens", alive=self._lives, seen=self.log)

    def stop(self) -> None:
        """End it and cut off all who are logged in, as a login node that crashes does."""
        daemon, self._daemon = self._daemon, None
        if daemon is None:
            return
        daemon.send_signal(signal.SIGSTOP)  # takes nobody new while its sessions are looked for
        for pid in _sessions_of(daemon.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.kill()
        daemon.wait()

    @property
    def sessions(self) -> int:
        """Return how many are logged in now."""
        return 0 if self._daemon is None else len(_children_of(self._daemon.pid))

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def _lives(self) -> bool:
        return self._daemon is not None and self._daemon.poll() is None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _children_of(pid: int) -> list[int]:
    numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [each for each in numbers if parent_of(each) == pid]


def _sessions_of(pid: int) -> list[int]:
    """Return the processes of sshd below one: what people run in their sessions is left to find out by itself."""
    found = _children_of(pid)
    for each in list(found):
        for below in _children_of(each):
            name = Path(f"/proc/{below}/comm")
            with contextlib.suppress(OSError):
                if name.read_text().startswith("sshd"):
                    found.append(below)
    return found


@contextlib.contextmanager
def running_ssh_server(folder: Path, env: Mapping[str, str]) -> Iterator[SshServer]:
    """Yield a login node; nobody is logged in any more afterwards."""
    server = SshServer(folder, env)
    try:
        server.start()
        yield server
    finally:
        server.stop()
