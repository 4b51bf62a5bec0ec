"""A cluster that is logged in to: everything through one connection to a real sshd, which may be gone for a while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.port import Cursor, Runtime
from airflow_training.runtimes.slurm.login.channel import LoginChannel
from airflow_training.runtimes.slurm.login.runtime import LoginRuntime
from airflow_training.runtimes.slurm.login.ssh_login import SshLogin
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.settings import user_name
from tests.contracts.runtime import JOB, Harness, watching
from tests.runtimes.local_runs import COMMANDS
from tests.runtimes.slurm.command_runs import ECHO, FAILS_ONCE, home, start
from tests.runtimes.slurm.lab import Lab, put_counted_commands
from tests.waiting import PATIENCE, until, wait_until

__all__ = ["home"]

pytestmark = pytest.mark.e2e


@contextlib.asynccontextmanager
async def channel_to(login: SshLogin) -> AsyncIterator[LoginChannel]:
    """Yield a connection, which is closed afterwards."""

    async def find() -> SshLogin:
        return login

    channel = LoginChannel("tests", find)
    try:
        yield channel
    finally:
        await asyncio.to_thread(channel.close)


@contextlib.asynccontextmanager
async def login_harness(lab: Lab, login: SshLogin) -> AsyncIterator[Harness]:
    """Yield a prepared run of a login of its own; nothing of it is left afterwards."""
    async with channel_to(login) as channel, prepared(lab, LoginRuntime(channel)) as harness:
        yield harness


@contextlib.asynccontextmanager
async def prepared(lab: Lab, runtime: Runtime) -> AsyncIterator[Harness]:
    """Yield a prepared run; nothing of it is left afterwards."""
    run = RunRef(uid=secrets.token_hex(10), job="login", namespace="default", controller="tests")
    await runtime.prepare(run, JOB)
    try:
        yield Harness(runtime=runtime, run=run, commands=COMMANDS)
    finally:
        await runtime.remove(run)
        await until(lambda: not lab.jobs(run.uid))


async def test_a_job_goes_through_one_connection(lab, login_node, tmp_path):
    login = SshLogin.parse(login_node.address(tmp_path))
    async with (
        login_harness(lab, login) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        await harness.runtime.create([harness.spec("sleeper"), harness.spec("broken")])
        await seen.state("sleeper", 0, "running")
        failed = await seen.state("broken", 0, "failed")
        assert failed.exit_code == 3
        ref, words = harness.ref("broken"), b"this is broken\non stderr\n"
        first = await harness.runtime.read_log(ref, Cursor(), limit=8)
        rest = await harness.runtime.read_log(ref, first.next, limit=100)
        assert (first.data, rest.data, rest.end) == (words[:8], words[8:], True)
        assert await harness.runtime.tail_log(ref, limit=7) == words[-7:]
        view = await harness.runtime.cluster_view()
        assert {each.name for each in view.nodes} == {"n1", "n2", "n3"}
        assert login_node.sessions == 1
    assert login_node.log().count("Accepted publickey") == 1


async def test_a_login_that_is_gone_ends_nothing_and_doubles_nothing(lab, login_node, tmp_path):
    login = SshLogin.parse(login_node.address(tmp_path))
    async with login_harness(lab, login) as harness:
        specs = [harness.spec("sleeper", index) for index in range(2)]
        async with watching(harness.runtime, harness.run) as seen:
            await harness.runtime.create(specs)
            before = [await seen.state("sleeper", index, "running") for index in range(2)]
        login_node.stop()
        with pytest.raises(RuntimeUnavailable, match="the login"):
            await harness.runtime.create(specs)
        with pytest.raises(RuntimeUnavailable, match="the login"):
            async for _ in harness.runtime.watch(harness.run):
                pass
        assert len(lab.jobs(harness.run.uid)) == 2, "they go on"
        login_node.start()

        await _until_it_answers(harness)
        again = await harness.runtime.create(specs)
        assert [each.result for each in again] == ["adopted", "adopted"]
        async with watching(harness.runtime, harness.run) as seen:
            after = [await seen.state("sleeper", index, "running") for index in range(2)]
        assert [each.uid for each in after] == [each.uid for each in before]
        assert len(lab.jobs(harness.run.uid)) == 2


async def test_a_watch_that_loses_its_login_says_so(lab, login_node, tmp_path):
    async with login_harness(lab, SshLogin.parse(login_node.address(tmp_path))) as harness:
        changes = harness.runtime.watch(harness.run)
        await anext(changes)
        login_node.stop()
        with pytest.raises(RuntimeUnavailable, match="the login"):
            await anext(changes)
        login_node.start()
        await _until_it_answers(harness)


def _command_lines() -> Iterator[bytes]:
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield each.read_bytes()


async def _until_it_answers(harness: Harness) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            with contextlib.suppress(RuntimeUnavailable):
                await harness.runtime.cluster_view()
                return
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("wrong", ["host", "user"])
async def test_only_keys_that_fit_let_anybody_in(login_node, tmp_path, monkeypatch, wrong):
    pause = "airflow_training.runtimes.slurm.login.channel._FIRST_PAUSE_SECONDS"
    monkeypatch.setattr(pause, 3600.0)
    if wrong == "host":
        login_node.known_hosts.write_text(
            f"[127.0.0.1]:{login_node.port} "
            + login_node.make_key("other").with_suffix(".pub").read_text()
        )
        address, said = login_node.address(tmp_path), "[Hh]ost key"
    else:
        address, said = login_node.address(tmp_path, key=login_node.make_key("other")), "Permission"
    async with channel_to(SshLogin.parse(address)) as channel:
        with pytest.raises(RuntimeUnavailable, match=said):
            await channel.localize(JOB)
        # its server tells of it when the client may have gone already
        await until(lambda: login_node.log().count("[preauth]") == 1)
        with pytest.raises(RuntimeUnavailable, match=said):
            await channel.localize(JOB)
        knocks = login_node.log().count("[preauth]")
        assert knocks == 1, "who fails does not knock again at once"


async def test_a_python_that_is_not_there_is_told(login_node, tmp_path):
    address = login_node.address(tmp_path, python="/nowhere/python3")
    async with channel_to(SshLogin.parse(address)) as channel:
        with pytest.raises(RuntimeUnavailable, match="/nowhere/python3"):
            await channel.localize(JOB)


async def test_a_login_node_without_slurm_s_commands_is_told(login_node, tmp_path):
    login_node.stop()
    login_node.env = {"PATH": "/nowhere"}
    login_node.start()
    run = RunRef(uid="u1", job="x", namespace="default", controller="tests")
    async with channel_to(SshLogin.parse(login_node.address(tmp_path))) as channel:
        runtime = LoginRuntime(channel)
        first = Harness(runtime=runtime, run=run, commands=COMMANDS).spec("sleeper")
        (problem,) = await runtime.check(run, JOB, [first])
    assert problem.message == "there is no command sbatch on the login node"


async def test_a_key_of_an_airflow_connection_is_nowhere_but_in_memory(lab, login_node, tmp_path):
    secret = login_node.key.read_text()
    address = SshLogin.parse(login_node.address(tmp_path))
    extra = {
        "private_key": secret,
        "host_key": login_node.host_key,
        "folder": str(tmp_path),
        "python": address.python,
        "options": {"partition": "spare"},
    }
    login = SshLogin.from_airflow(
        "hpc", host="127.0.0.1", user=address.user, port=login_node.port, extra=extra
    )
    line = secret.splitlines()[1].encode()
    async with (
        login_harness(lab, login) as harness,
        watching(harness.runtime, harness.run) as seen,
    ):
        shown = ("sh", "-c", "env; cat /proc/self/cmdline; sleep 600")
        await harness.runtime.create([harness.spec("sleeper", command=shown)])
        await seen.state("sleeper", 0, "running")
        assert set(lab.run(["squeue", "--noheader", "--format=%P"]).split()) == {"spare"}
        words = b"\n".join(_command_lines())
        assert b"ssh\0-T" in words
        assert b"ControlPath=none" in words, "a connection that is open already asks for no key"
        assert line not in words
        files = [each for each in tmp_path.rglob("*") if each.is_file()]
        assert files
        assert [each for each in files if line in each.read_bytes()] == []
    with pytest.raises(InputError, match="no_host_key_check"):
        SshLogin.from_airflow(
            "hpc", host="h", user="u", port=22, extra={"no_host_key_check": "true"}
        )


def _put_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let `ssh` be a script: for what no server can be made to do at the right moment."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (own / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")


async def test_a_host_that_does_not_answer_holds_up_nobody_else(tmp_path, monkeypatch):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    began, goes_on = tmp_path / "began", tmp_path / "goes on"
    os.mkfifo(goes_on)
    _put_ssh(tmp_path, monkeypatch, f"echo >>'{began}'; cat '{goes_on}' >&2; exit 255")
    async with channel_to(SshLogin(host="login1")) as channel:
        asking = [asyncio.ensure_future(channel.localize(JOB)) for _ in range(3)]
        await until(began.exists)
        await asyncio.to_thread(began.exists)  # in the one thread that all share
        assert not any(each.done() for each in asking)
        asking[0].cancel()
        await asyncio.to_thread(goes_on.write_text, "no route to it\n")
        said = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(said[0], asyncio.CancelledError)
    assert [str(each) for each in said[1:]] == ["the login login1: no route to it"] * 2
    assert began.read_text() == "\n", "one try for all of them"


async def test_what_a_login_shell_prints_before_is_passed_over(tmp_path, monkeypatch):
    last = "for each; do :; done"  # the command, which a shell there runs
    _put_ssh(tmp_path, monkeypatch, f"echo a; printf 'welcome '; {last}; exec sh -c \"$each\"")
    login = SshLogin(host="login1", python=sys.executable, folder=str(tmp_path / "shared"))
    async with channel_to(login) as channel:
        assert (await channel.localize(JOB)).base_dir == str(Path.home())


async def test_programs_of_other_versions_go_once_nobody_has_used_them_for_a_week(
    tmp_path, monkeypatch
):
    _put_ssh(tmp_path, monkeypatch, 'for each; do :; done; exec sh -c "$each"')
    cache = tmp_path / "shared" / ".agent"
    cache.mkdir(parents=True, mode=0o700)
    for name, days in (("login-old.pyz", 8), ("login-new.pyz", 6), ("agent-old.pyz", 8)):
        (cache / name).touch()
        then = time.time() - days * 24 * 3600
        os.utime(cache / name, (then, then))
    login = SshLogin(host="login1", python=sys.executable, folder=str(tmp_path / "shared"))
    async with channel_to(login) as channel:
        await channel.localize(JOB)
    ours = {each.name for each in cache.iterdir()} - {"login-new.pyz", "agent-old.pyz"}
    assert len(ours) == 1
    assert "login-old.pyz" not in ours
    (own,) = ours
    then = time.time() - 8 * 24 * 3600
    os.utime(cache / own, (then, then))
    async with channel_to(login) as channel:
        await channel.localize(JOB)
    assert (cache / own).stat().st_mtime > then + 24 * 3600, "it is used again"


@pytest.mark.parametrize("way", ["here", "login"])
async def test_where_nothing_changes_slurm_is_asked_seldom_however_many_runs_there_are(
    way, lab, login_node, tmp_path, monkeypatch
):
    """Two requests a minute: the pause between two of them grows to half a minute, for all runs together."""
    path, asked = put_counted_commands(tmp_path)
    monkeypatch.setenv("PATH", path)
    login_node.stop()
    login_node.env = {**login_node.env, "PATH": path}
    login_node.start()

    def is_quiet() -> bool:
        before, last = (float(line) for line in asked.read_text().split()[-2:])
        return last - before >= 30.0

    login = SshLogin.parse(login_node.address(tmp_path / "runs"))
    async with contextlib.AsyncExitStack() as stack:
        runtime: Runtime = SlurmRuntime(root=tmp_path / "runs")
        if way == "login":
            runtime = LoginRuntime(await stack.enter_async_context(channel_to(login)))
        for _ in range(5):
            harness = await stack.enter_async_context(prepared(lab, runtime))
            seen = await stack.enter_async_context(watching(runtime, harness.run))
            await runtime.create([harness.spec("sleeper")])
            await seen.state("sleeper", 0, "running")
        await until(is_quiet, "the pause between two requests is half a minute")


def test_a_gang_of_the_command_line_runs_where_its_connection_says(home, lab, login_node):
    there = home / "on the cluster"
    choice = f'runtime: {{name: slurm, connection: "{login_node.address(there)}",'
    text = (ECHO % FAILS_ONCE).replace("runtime: {name: slurm,", choice)
    (home / "job.yaml").write_text(text)
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert "InstanceRestarted" in said
    assert not (home / "training" / "slurm").exists(), "nothing of it is here"
    shown = start("logs", "show", "one", "--role", "worker", "--index", "0")
    assert re.search(r"rank 1 of 3, master at 127\.0\.0\.1", shown.communicate()[0])
    assert list(there.glob("*/worker-0/attempt-0.0.1/log"))
    wait_until(lambda: not lab.jobs())
    wait_until(lambda: login_node.sessions == 0)


def test_a_run_goes_on_while_its_login_is_away_and_says_so(home, lab, login_node):
    there, go = home / "there", home / "go"
    choice = f'runtime: {{name: slurm, connection: "{login_node.address(there)}",'
    waits = f"while ! test -e {go}; do sleep 0.1; done"
    text = (ECHO % waits).replace("runtime: {name: slurm,", choice)
    (home / "job.yaml").write_text(text)
    run = start("run", "job.yaml", "--run-id", "one")

    def logs() -> list[str]:
        return [each.read_text() for each in there.glob("*/*/attempt-*/log")]

    wait_until(lambda: sum("rank" in each for each in logs()) == 3)

    def status() -> str:
        return start("status", "one").communicate()[0]

    login_node.stop()
    wait_until(lambda: "RuntimeUnknown" in status(), seen=status)
    go.touch()
    login_node.start()
    said = run.communicate()[0]
    assert run.returncode == 0, said
    assert f"the login {user_name()}@127.0.0.1:{login_node.port}: " in said, "why it did not answer"
    assert len(logs()) == 3
    assert len(list(there.glob("*/allocations/*/submitted.json"))) == 1
