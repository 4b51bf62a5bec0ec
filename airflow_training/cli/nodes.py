"""`nodes list | exclude | allow`: nodes that nothing new is placed on, for all runs of a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_training.cli.context import open_store, settings
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    time_text,
)
from airflow_training.cli.program import command_group
from airflow_training.cli.times import age_seconds
from airflow_training.settings import user_name
from airflow_training.state.nodes import Cluster

__all__ = ["app"]

app = command_group("nodes", "Nodes that nothing new is placed on.")

NodeArgument = Annotated[
    str, typer.Argument(metavar="NODE", help="Its name, as its cluster has it.")
]
RuntimeOption = Annotated[
    str, typer.Option(metavar="NAME", help="Whose node; by default \\[training] default_runtime.")
]
ConnectionOption = Annotated[
    str, typer.Option(metavar="ID", help="Of jobs that name a connection: theirs.")
]
_LONGEST_NAME = 250


@app.command("list")
def list_all(output: OutputOption = OutputFormat.table) -> None:
    """List the nodes that are excluded now, until when and why."""
    found = open_store().nodes.all_excluded()
    if output is OutputFormat.json:
        rows = [
            {
                "runtime": cluster.runtime,
                "connection": cluster.connection or None,
                "node": each.node,
                "since": time_text(each.since),
                "until": time_text(each.until) or None,
                "why": each.why,
                "by": each.by,
            }
            for cluster, each in found
        ]
        print_json({"excluded": rows})
        return
    print_table(
        ["node", "cluster", "since", "until", "by", "why"],
        [
            [
                each.node,
                str(cluster),
                time_text(each.since),
                time_text(each.until) or "allowed again",
                each.by,
                each.why,
            ]
            for cluster, each in found
        ],
    )
    if found:
        cluster, first = found[0]
        next_step("nodes", "allow", first.node, *_options(cluster))


@app.command()
def exclude(
    node: NodeArgument,
    why: Annotated[str, typer.Option(help="What is wrong with it.")] = "",
    lasts: Annotated[
        str, typer.Option("--for", metavar="AGE", help="For how long: 12h, 7d; else until allowed.")
    ] = "",
    runtime: RuntimeOption = "",
    connection: ConnectionOption = "",
) -> None:
    """Let nothing new be placed on a node; what runs there goes on."""
    from airflow_training.control.node_faults import NodeExclusion

    if not node or len(node) > _LONGEST_NAME or any(each in node for each in ", \t\n"):
        raise fail("NODE", f"1 to {_LONGEST_NAME} characters without space and comma", value=node)
    seconds = age_seconds(lasts, option="--for") if lasts else None
    cluster = _cluster(runtime, connection)
    store = open_store()
    now = store.now()
    made = NodeExclusion(
        node=node,
        since=now,
        until=None if seconds is None else now + seconds,
        why=why or "excluded by hand",
        by=user_name(),
    )
    store.nodes.exclude(cluster, made)
    note(f"{cluster}: nothing new is placed on {made}")
    next_step("nodes", "allow", node, *_options(cluster))


@app.command()
def allow(
    node: NodeArgument, runtime: RuntimeOption = "", connection: ConnectionOption = ""
) -> None:
    """Let a node be used again; what failed there before counts no more."""
    cluster = _cluster(runtime, connection)
    store = open_store()
    if not store.nodes.allow(cluster, node):
        known = [each.node for each in store.nodes.excluded(cluster)]
        message = f"is not excluded on {cluster}"
        raise fail(
            "NODE",
            message,
            code="bad_reference",
            value=node,
            allowed=known,
            hint="" if known else "`nodes list` shows those of all clusters",
        )
    note(f"{cluster}: {node} may be used again")
    next_step("nodes", "list")


def _cluster(runtime: str, connection: str) -> Cluster:
    from airflow_training.runtimes.registry import adapter_of, adapters

    name = runtime or settings().default_runtime
    if not adapter_of(name).capabilities.excludes_nodes:
        known = [each.name for each in adapters() if each.capabilities.excludes_nodes]
        message = f"{name} places nothing on nodes"
        raise fail("--runtime", message, value=name, allowed=known)
    return Cluster(runtime=name, connection=connection)


def _options(cluster: Cluster) -> list[str]:
    connection = ["--connection", cluster.connection] if cluster.connection else []
    return ["--runtime", cluster.runtime, *connection]
