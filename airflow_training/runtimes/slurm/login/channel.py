"""One connection to a login node: OpenSSH, at its other end our program, and any number of questions at a time.

It belongs to no event loop; a thread reads what comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.port import Streams
from airflow_training.runtimes.slurm.login.messages import decode, decode_error, encode, line_of
from airflow_training.runtimes.slurm.login.program import (
    MARK,
    bootstrap_command,
    connected_command,
    program,
)
from airflow_training.runtimes.slurm.login.ssh_login import SshLogin
from airflow_training.runtimes.terminal import run_in_terminal

__all__ = ["LoginChannel"]

_OPTIONS = (
    "BatchMode=yes",  # nobody is there to type
    "StrictHostKeyChecking=yes",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ControlMaster=no",  # one that a person has opened is used, and none is left behind
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
    "LogLevel=ERROR",
)
_HERE_SECONDS = 20.0
"""Between two signs of life for the other end, which counts us as gone after some more."""
_BEGIN_SECONDS = 120.0
"""How long a login may take, with what a site's shell does at its start."""
_LONGEST_GREETING = 1 << 20
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 60.0
"""Until the next try after a login that failed: sites lock out who knocks too often."""
_ALIAS = "airflow-training-login"
_GONE = "the connection is gone"


class _Connection:
    """One ssh process, from its first line to its end."""

    def __init__(self, login: SshLogin, *, inherit: Sequence[str]) -> None:
        """Log in, and return when the program there answers; blocks. Raises RuntimeUnavailable."""
        self.login = login
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Callable[[Mapping[str, Any] | None], None]] = {}
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as ssh writes into it
        self._ended = threading.Event()
        self._process = os.getpid()
        self.home = ""
        """Where relative paths of jobs begin there."""
        self.problem = ""
        """Why it has ended."""
        with contextlib.ExitStack() as stack:
            self._ssh = subprocess.Popen(
                [*_words(login, stack), _command(login, inherit)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                start_new_session=True,  # Ctrl-C is for us, who still have to end what runs there
            )
            self._input = cast("IO[bytes]", self._ssh.stdin)  # both are pipes
            self._output = cast("IO[bytes]", self._ssh.stdout)
            timer = threading.Timer(_BEGIN_SECONDS, self._ssh.kill)
            timer.daemon = True
            timer.start()
            threading.Thread(target=self._send, name="slurm login input", daemon=True).start()
            try:
                self._greet()
            except BaseException:
                self.close()
                self._output.close()
                self._said.close()
                raise
            finally:
                timer.cancel()
        threading.Thread(target=self._read, name="slurm login", daemon=True).start()

    @property
    def lives(self) -> bool:
        """Return whether it answers: in a process that was forked from ours nobody reads what comes."""
        return not self._ended.is_set() and self._process == os.getpid()

    def _greet(self) -> None:
        read, mark = 0, MARK.encode()
        while True:
            line = self._output.readline(_LONGEST_GREETING)
            read += len(line)
            if not line or read > _LONGEST_GREETING:
                raise RuntimeUnavailable(self._why("nothing of ours answers there"))
            _, marked, text = line.partition(mark)  # a greeting may end without a new line
            if not marked:
                continue
            said = json.loads(text)
            if "need" in said:
                self._outbox.put(program())
            elif "ready" in said:
                self.home = str(said["home"])
                return
            elif "old" in said:
                raise InputError.of(
                    code="not_supported",
                    field="spec.runtime.connection",
                    value=str(self.login),
                    message=f"{said['path']} on the login node is Python {said['old']}: 3.10 is the oldest that can answer",
                    hint="name another with ?python=/path of ssh://..., or the extra python of the Airflow connection",
                )
            else:
                raise RuntimeUnavailable(self._why(str(said.get("failed"))))

    def _why(self, otherwise: str) -> str:
        """Return why there is no connection: what ssh said last."""
        if self.problem:
            return self.problem
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._ssh.wait(5)
        lines: Sequence[str] = ()
        with contextlib.suppress(ValueError):  # closed just then
            self._said.seek(0)
            lines = self._said.read()[-4000:].decode(errors="replace").splitlines()
        text = "; ".join(each.strip() for each in lines[-3:] if each.strip())
        return f"the login {self.login}: {text or otherwise}"

    def ask(
        self, request: Mapping[str, Any], take: Callable[[Mapping[str, Any] | None], None]
    ) -> int:
        """Send a request, without waiting; `take` gets what comes, in another thread, and None where the connection ends."""
        number = next(self._numbers)
        self._waiting[number] = take
        if not self.lives:  # ended meanwhile: nobody would say so any more
            self._waiting.pop(number, None)
            raise RuntimeUnavailable(self.problem or f"the login {self.login}: {_GONE}")
        self._outbox.put(line_of({"id": number, **request}))
        return number

    def forget(self, number: int) -> None:
        """Let what was asked go, and say so."""
        if self._waiting.pop(number, None) is not None and self.lives:
            self._outbox.put(line_of({"id": number, "cancel": True}))

    def _read(self) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):  # closed by us, or cut off within a line
                for line in self._output:
                    said = json.loads(line)
                    number = said["id"]
                    is_more = "item" in said
                    take = self._waiting.get(number) if is_more else self._waiting.pop(number, None)
                    if take is not None:
                        take(said)
        finally:
            self._ended.set()
            self.problem = self._why(_GONE)
            for number in list(self._waiting):
                take = self._waiting.pop(number, None)  # who asked may just have let it go
                if take is not None:
                    take(None)
            self.close()
            self._output.close()
            self._said.close()

    def _send(self) -> None:
        """Write what is asked for, and signs of life between: only this thread waits for a line that is slow."""
        with contextlib.suppress(OSError), self._input:
            while not self._ended.is_set():
                try:
                    data = self._outbox.get(timeout=_HERE_SECONDS)
                except queue.Empty:
                    data = b"\n" if self.home else b""  # before, all is taken for the program
                self._input.write(data)
                self._input.flush()
        # where it reads no more, whoever waits for an answer is told by its end
        if not self._ended.is_set():
            self._ssh.kill()

    def close(self) -> None:
        """End it; what runs there goes on."""
        self._ended.set()
        self._outbox.put(b"")
        try:
            self._ssh.wait(5)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()


def _command(login: SshLogin, inherit: Sequence[str]) -> str:
    return bootstrap_command(python=login.python, folder=login.folder, inherit=inherit)


def _words(login: SshLogin, stack: contextlib.ExitStack, *, terminal: bool = False) -> list[str]:
    """Return the words of ssh without its command. Secrets are in no word, and in no file that has a name."""
    words = ["ssh", *(("-tt", "-e", "none") if terminal else ("-T",))]
    options = list(_OPTIONS)
    if login.private_key:
        key = _in_memory(login.private_key.strip() + "\n", stack)
        words += ["-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]
    elif login.key_file:
        words += ["-i", login.key_file, "-o", "IdentitiesOnly=yes"]
    # a connection that is open already asks for no keys
    if login.private_key or login.key_file or login.host_key or login.known_hosts:
        options.append("ControlPath=none")
    if login.host_key:
        known = _in_memory(f"{_ALIAS} {login.host_key}\n", stack)
        options += [f"HostKeyAlias={_ALIAS}", f"UserKnownHostsFile={known}", "GlobalKnownHostsFile=/dev/null"]  # fmt: skip
    elif login.known_hosts:
        options += [f'UserKnownHostsFile="{login.known_hosts}"', "GlobalKnownHostsFile=/dev/null"]
    for option in options:
        words += ["-o", option]
    if login.port is not None:
        words += ["-p", str(login.port)]
    if login.user:
        words += ["-l", login.user]
    return [*words, "--", login.host]


def _in_memory(text: str, stack: contextlib.ExitStack) -> str:
    """Return the path of a file that is on no disk, and gone with us; ssh closes what it inherits."""
    descriptor = os.memfd_create("login", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.fchmod(descriptor, 0o600)
    os.write(descriptor, text.encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


class LoginChannel:
    """The login of one cluster, for all runs of this process: made when it is needed, and again when it was lost."""

    def __init__(
        self, name: str, find: Callable[[], Awaitable[SshLogin]], *, inherit: Sequence[str] = ()
    ) -> None:
        """`find`: says where that is, each time anew, as keys change."""
        self._name = name
        self._find = find
        self._inherit = tuple(inherit)
        self._connection: _Connection | None = None
        self._coming: Future[_Connection] | None = None
        """While a thread logs in, for all who wait for that."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._pause = _FIRST_PAUSE_SECONDS
        self._next_at = 0.0
        self._problem = ""

    async def localize(self, job: ResolvedJob) -> ResolvedJob:
        """Return a job as it is there: relative paths begin in the home, and the login has options of its own."""
        connection = await self._connected()
        options = {**connection.login.options, **job.runtime_options}
        # the folder of the job file is of this machine
        return replace(job, base_dir=connection.home, runtime_options=options)

    async def call(self, name: str, *words: Any, **named: Any) -> Any:
        """Have a method of the runtime there called; raises what it raises, and RuntimeUnavailable."""
        connection = await self._connected()
        answer: Future[Any] = Future()

        def take(said: Mapping[str, Any] | None) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(_read_answer(connection, said))
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                answer.set_exception(error)

        number = connection.ask(_request(name, words, named), take)
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            connection.forget(number)
            raise

    async def follow(self, name: str, *words: Any, **named: Any) -> AsyncGenerator[Any, None]:
        """Yield what a method there yields; raises as `call` does."""
        connection = await self._connected()
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

        def take(said: Mapping[str, Any] | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop of who has asked is closed
                loop.call_soon_threadsafe(came.put_nowait, said)

        number = connection.ask(_request(name, words, named), take)
        try:
            while True:
                yield _read_answer(connection, await came.get())
        finally:
            connection.forget(number)

    async def run_in_terminal(self, words: Sequence[str], streams: Streams) -> int:
        """Run a command on the login node, by a connection of its own; return its exit code."""
        with contextlib.ExitStack() as stack:
            login = await self._find()
            there = _words(login, stack, terminal=streams.terminal)
            return await run_in_terminal(
                [*there, connected_command(words, python=login.python)],
                descriptors=streams.descriptors,
                terminal=streams.terminal,
            )

    async def _connected(self) -> _Connection:
        known = self._known()
        if known is not None:
            return known
        return await asyncio.wrap_future(self._begin(await self._find()))

    def _known(self) -> _Connection | None:
        """Return the connection that lives; raises RuntimeUnavailable where another try is not due."""
        if self._connection is not None and self._connection.lives:
            return self._connection
        if time.monotonic() < self._next_at:
            raise RuntimeUnavailable(self._problem)
        return None

    def _begin(self, login: SshLogin) -> Future[_Connection]:
        """Have one thread log in, which holds up none of those that others share."""
        with self._lock:
            known = self._known()
            if known is not None:
                there: Future[_Connection] = Future()
                there.set_result(known)
                return there
            if self._coming is None or self._process != os.getpid():  # that thread is not in a fork
                self._coming, self._process = Future(), os.getpid()
                self._coming.set_running_or_notify_cancel()  # who waits no more ends it for nobody else
                work = partial(self._connect, login, self._coming)
                threading.Thread(target=work, name="slurm login", daemon=True).start()
            return self._coming

    def _connect(self, login: SshLogin, coming: Future[_Connection]) -> None:
        try:
            made = self._log_in(login)
        except Exception as error:  # noqa: BLE001 - it is raised where the connection is awaited
            with self._lock:
                self._coming = None
                self._problem = str(error)
                self._next_at = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            coming.set_exception(error)
        else:
            with self._lock:
                self._connection, self._coming = made, None
                self._pause = _FIRST_PAUSE_SECONDS
            coming.set_result(made)

    def _log_in(self, login: SshLogin) -> _Connection:
        if shutil.which("ssh") is None:
            raise InputError.of(
                code="not_installed",
                field="spec.runtime.connection",
                value=self._name,
                message="there is no command ssh on this machine",
                hint="install the client of OpenSSH",
            )
        try:
            return _Connection(login, inherit=self._inherit)
        # no process, no file; a garbled greeting
        except (OSError, ValueError, LookupError) as error:
            raise RuntimeUnavailable(f"the login {login}: {error}") from error

    def close(self) -> None:
        """End the connection; the next question makes another."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _request(name: str, words: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    return {"call": name, "words": encode(tuple(words)), "named": encode(named)}


def _read_answer(connection: _Connection, said: Mapping[str, Any] | None) -> Any:
    if said is None:
        raise RuntimeUnavailable(connection.problem)
    if "error" in said:
        raise decode_error(said["error"])
    return decode(said["item"] if "item" in said else said["answer"])
