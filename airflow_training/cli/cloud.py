"""`cloud`: a local script runs elsewhere as if it ran here. What is done is in `airflow_training.cloud`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from airflow_training.cli.cloud_room import gc
from airflow_training.cli.cloud_run import (
    OPTIONS,
    default_of,
    module_place,
    run_there,
    words_of,
)
from airflow_training.cli.documents import CsvOption, OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
)
from airflow_training.cli.program import command_group

if TYPE_CHECKING:
    from airflow_training.cloud.client import CloudClient

__all__ = ["app"]

app = command_group(
    "cloud", "Run a local script elsewhere: its code, arguments and environment travel with it."
)

app.command()(gc)

TargetOption = Annotated[
    str, typer.Option(help="Where, of `cloud targets`; by default the newest login, else here.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id (see `cloud list`).")]


class _ProgramCommand(TyperCommand):
    """Leaves all that stands behind the script, or behind `-m MODULE`, to the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [*args]
        module = module_place(words)
        if module is not None and words[module + 2 : module + 3] != ["--"]:
            words.insert(module + 2, "--")
        return super().parse_args(ctx, words)


def _run_signature() -> inspect.Signature:
    """The parameters of `run`, as Typer reads them, of the one list of options."""
    script = typer.Argument(metavar="SCRIPT ARGS...", help="All behind the script belongs to it.")
    module = typer.Option("-m", metavar="MODULE", help="A module instead of a script.")
    kinds: list[tuple[str, Any, Any]] = [
        ("words", Annotated[list[str] | None, script], None),
        ("module", Annotated[str, module], ""),
    ]
    for name, option in OPTIONS.items():
        default = default_of(option)
        several = isinstance(default, (tuple, dict))
        told = {key: each for key, each in option.metadata.items() if key != "name"}
        kind: Any = list[str] | None if several else type(default)
        default = None if several else default
        kinds.append((option.name, Annotated[kind, typer.Option(name, **told)], default))
    kinds.append(("output", OutputOption, OutputFormat.table))
    return inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
            )
            for name, kind, default in kinds
        ]
    )


def run_script(**typed: Any) -> None:
    """Run a script elsewhere; nothing of it is executed here, and nothing in it changes.

    Shows what rank 0 prints, ends with its exit code, and puts the model where the script would have.
    Ctrl-C asks: detach or stop; a second one stops.
    """
    given = {name: each for name, each in typed.items() if each is not None}
    sys.exit(run_there(words_of(given)))


vars(run_script)["__signature__"] = _run_signature()
app.command(
    name="run",
    cls=_ProgramCommand,
    context_settings={"allow_interspersed_args": False},
    no_args_is_help=True,
)(run_script)


@app.command()
def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")],
    url: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="Of the service, or RUNTIME:CONTEXT/NAMESPACE without one."
        ),
    ],
    key: Annotated[
        str,
        typer.Option(
            envvar="AIRFLOW_TRAINING_KEY",
            help="Without it, you are asked; of an Airflow also its token, or a key of its accounts.",
        ),
    ] = "",
    username: Annotated[str, typer.Option(help="Of an Airflow; without it, you are asked.")] = "",
    password: Annotated[str, typer.Option(envvar="AIRFLOW_PASSWORD", help="Of the user.")] = "",
    storage: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Without a service: of code and output.")
    ] = "",
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Without a service: what instances run in.")
    ] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Without a service: as of `cloud serve`.")
    ] = None,
) -> None:
    """Keep address and key of a target; it is the default from then on.

    The key of an Airflow is the token that it gives to a user, which ends after some time: log in again then.
    """
    from airflow_training import __version__
    from airflow_training.cloud.client import CloudClient
    from airflow_training.cloud.target_settings import is_direct
    from airflow_training.cloud.targets import (
        Target,
        check_target,
        is_unencrypted,
        save_target,
    )

    if is_direct(url):
        _login_directly(name, url, storage=storage, image=image, config=config)
        return
    if storage or image or config:
        raise fail(
            "--storage" if storage else "--image" if image else "--config",
            "a service has its own settings",
            hint="RUNTIME:CONTEXT/NAMESPACE is a target without a service",
        )
    address = url.rstrip("/")
    check_target(Target(name=name, url=address))
    if is_unencrypted(address):  # before a password is typed
        note(
            f"warning: {address} is without TLS: whoever is on the way reads the key and the programs;"
            " next: an address of https"
        )
    if not key:
        with CloudClient.at(address, "") as client:
            of_airflow = client.about().get("login") == "airflow"
        key = _airflow_token(address, username, password) if of_airflow else _typed_key()
    target = Target(name=name, url=address, key=key)
    with CloudClient.at(target.url, key) as client:
        about = client.about_client()
        client.runs()  # whether the key is known
    save_target(target)
    if about["version"] != __version__:
        note(
            f"warning: {name} has airflow-training {about['version']}, and here is {__version__};"
            f" next: {about['install']}"
        )
    print(f"{name} is {target.url}")
    next_step("cloud", "run", "train.py")


def _typed_key() -> str:
    if not sys.stdin.isatty():
        return ""
    return str(typer.prompt("key", hide_input=True, err=True))


def _airflow_token(address: str, username: str, password: str) -> str:
    """What Airflow gives for name and password, or to everybody; empty where nobody is there to be asked."""
    from airflow_training.cli.airflow_api import AirflowApi

    asks = sys.stdin.isatty()
    if not username:
        with AirflowApi(address) as airflow:  # of $AIRFLOW_TOKEN, or of an Airflow without logins
            if airflow.token or not asks:
                return airflow.token
        username = typer.prompt("user of that Airflow", err=True)
    if not password and asks:
        password = typer.prompt("password", hide_input=True, err=True)
    with AirflowApi(address, username=username, password=password) as airflow:
        return airflow.token


def _login_directly(
    name: str, address: str, *, storage: str, image: str, config: Path | None
) -> None:
    """Keep a target without a service, once it has answered what its image has."""
    from airflow_training.cloud.client import connect
    from airflow_training.cloud.target_settings import read_settings, settings_at
    from airflow_training.cloud.targets import Target, check_target, forget_target, save_target

    given = {**read_settings(config).to_json()} if config else {}
    if image:
        given.pop("images", None)
    given |= {key: text for key, text in (("storage", storage), ("image", image)) if text}
    settings = settings_at(address, given)
    target = Target(name=name, url=address, settings=settings.to_json())
    check_target(target)
    if settings.image:
        note(f"{settings.image} is asked what it has, once")
    before = save_target(target)
    try:
        with connect(target) as client:
            client.runs()
    except BaseException:
        forget_target(name, before)
        raise
    print(f"{name} is {address}")
    next_step("cloud", "run", "train.py")


@app.command()
def targets(output: OutputOption = OutputFormat.table) -> None:
    """List where runs can go; keys are not shown."""
    from airflow_training.cloud.targets import find_target, list_targets

    chosen = find_target().name
    known = list_targets()
    if output is OutputFormat.json:
        rows = [{"name": t.name, "url": t.url, "default": t.name == chosen} for t in known]
        print_json({"targets": rows})
        return
    print_table(
        ["target", "address", "default"],
        [[t.name, t.url or "this machine", "*" * (t.name == chosen)] for t in known],
    )


@app.command(name="list")
def list_runs(target: TargetOption = "", output: OutputOption = OutputFormat.table) -> None:
    """List the runs of a target that were sent with your key."""
    with _client(target) as client:
        runs = client.runs()
    if output is OutputFormat.json:
        print_json({"runs": [each.to_json() for each in runs]})
        return
    print_table(
        ["run", "state", "exit code"],
        [[each.run_id, each.state, each.exit_code] for each in runs],
    )


@app.command()
def logs(
    run: RunArgument,
    target: TargetOption = "",
    all_ranks: Annotated[bool, typer.Option("--all", help="Of all ranks, not only 0.")] = False,
    with_bill: Annotated[
        bool, typer.Option("--bill", help="Say what it has cost, at the end.")
    ] = False,
) -> None:
    """Follow a run to its end, from the beginning of its log, and bring its model back.

    Ends with the exit code of the run.
    """
    from airflow_training.cloud.data_sharing import start_sharing
    from airflow_training.cloud.program import follow_to_end

    start_sharing(run, target=_target_of(target, run=run))
    with _client(target, run=run) as client:
        ranks = [0]
        if all_ranks:
            known = [each["rank"] for each in client.run(run).instances]
            ranks = sorted(each for each in known if each is not None)
        code = follow_to_end(client, run, ranks=ranks, bill=with_bill)
    sys.exit(code)


@app.command()
def share(run: RunArgument, target: TargetOption = "") -> None:
    """Let a run read what stays on this machine, until the run is over.

    A process of its own does so since the run was sent; type this where that was ended.
    """
    from airflow_training.cloud.data_sharing import share_run

    with _client(target, run=run) as client:
        if not share_run(client, run, told=note):
            note(f"another process of this machine shares the data of {run} already")


@app.command()
def stop(run: RunArgument, target: TargetOption = "") -> None:
    """End a run."""
    with _client(target, run=run) as client:
        client.stop(run)
    print(f"{run} is asked to end")
    next_step("cloud", "logs", run)


@app.command()
def bill(
    run: RunArgument,
    target: TargetOption = "",
    csv: CsvOption = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Tell what a run costs until now: one row per role, price and month."""
    from airflow_training.cli.account_tables import print_bill

    with _client(target, run=run) as client:
        if csv:
            sys.stdout.write(client.bill_csv(run))
            return
        print_bill(client.bill(run), output=output)


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8740,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    token: Annotated[
        str,
        typer.Option(
            envvar="AIRFLOW_TRAINING_TOKEN",
            help="The key of clients; made if not given. Where accounts are kept, their keys do.",
        ),
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where runs go; without it, to this machine."),
    ] = None,
) -> None:
    """Take runs from elsewhere and run them on this machine, or where a file says, until interrupted."""
    import secrets
    import socket

    try:
        from airflow_training.cloud.service.account_admission import admission_of
        from airflow_training.cloud.service.serving import make_server, make_service
    except ModuleNotFoundError as error:
        raise fail(
            "cloud serve",
            f"a service needs {error.name}, which is not installed",
            code="not_supported",
            hint="pip install 'airflow-training[ui]'",
        ) from None
    from airflow_training.cloud.target_settings import read_settings
    from airflow_training.cloud.targets import cloud_folder

    key = token or secrets.token_urlsafe(32)
    admission, asks_accounts = admission_of(key)
    if token and asks_accounts:
        raise fail(
            "--token",
            "this store keeps accounts, and each user has a key",
            hint="airflow-training accounts key ACCOUNT",
        )
    settings = read_settings(config) if config else None
    if settings is not None and settings.image:
        note(f"{settings.image} is asked what it has, once")
    folder = cloud_folder() / "served"
    service = make_service(folder, admission, same_machine=False, settings=settings)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise fail("--port", f"port {port} cannot be used: {error.strerror}", value=port) from None
    print(f"http://{host}:{listener.getsockname()[1]}", flush=True)
    if asks_accounts:
        note("keys: airflow-training accounts key ACCOUNT")
    elif not token:
        note(f"key: {key}")
    note("next, where the scripts are: airflow-training cloud login NAME URL --key KEY")
    try:
        make_server(service).run(sockets=[listener])
    finally:
        listener.close()


def _client(target: str, *, run: str = "") -> CloudClient:
    """The client of a target; without one, of where the run was sent."""
    from airflow_training.cloud.client import connect
    from airflow_training.cloud.targets import find_target

    return connect(find_target(_target_of(target, run=run)))


def _target_of(target: str, *, run: str) -> str:
    """The name of a target; without one, where the run was sent, or empty."""
    from airflow_training.cloud.journal import known_run

    known = known_run(run) if run and not target else None
    return target or (known.target if known else "")
