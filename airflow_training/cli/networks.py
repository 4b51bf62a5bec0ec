"""`networks check | show | generate | list | save | export`: networks described as layers. Starts nothing, imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.context import open_store
from airflow_training.cli.documents import OutputOption
from airflow_training.cli.network_packages import package
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    problem_json,
    time_text,
)
from airflow_training.cli.program import command_group
from airflow_training.documents.text import counted
from airflow_training.errors import InputError
from airflow_training.settings import user_name

if TYPE_CHECKING:
    from airflow_training.networks.resolving import ResolvedNetwork
    from airflow_training.state.store import SavedNetwork, Store

__all__ = ["app"]

app = command_group("networks", "Networks described as layers.")
app.command()(package)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A document of kind Network.")]


@app.command()
def check(file: FileArgument, output: OutputOption = OutputFormat.table) -> None:
    """Report every mistake of a network, at the layer that makes it."""
    from airflow_training.documents.loading import read_file
    from airflow_training.networks.catalogue import broken_types, unread_types
    from airflow_training.networks.reading import parse_network

    network, problems = parse_network(read_file(file), str(file))
    for name, why in broken_types().items():
        note(f"warning: the type {name} of your own is broken: {why}")
    for why in unread_types():
        note(f"warning: types of your own could not be read: {why}")
    if output is OutputFormat.json:
        errors = [problem_json(problem) for problem in problems]
        print_json({"path": str(file), "valid": network is not None, "errors": errors})
        if network is None:
            raise typer.Exit(2)
        return
    if network is None:
        raise InputError(problems=problems, path=str(file))
    layers = counted(len(network.layers), "layer")
    note(f"{file}: {network.metadata.name} is good: {layers}, {network.parameters:,} parameters")
    next_step("networks", "show", file)


@app.command()
def show(
    file: FileArgument,
    batch_size: Annotated[
        int, typer.Option(min=1, max=2**31 - 1, help="Samples of the step whose memory is told.")
    ] = 32,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Show the shape, parameters and operations of each layer, and the memory of a training step.

    Operations are those of the forward pass of one sample, two for each multiplication of matrix products and convolutions.
    """
    from airflow_training.networks.reading import read_network
    from airflow_training.planning.answers.one_device import one_device_memory
    from airflow_training.planning.sources.networks import network_view

    network = read_network(file)
    memory = one_device_memory(network_view(network), batch_size=batch_size)
    if output is OutputFormat.json:
        numbers = {name: round(value) for name, value in memory.items()}
        taken = {"batch_size": batch_size, "bytes": sum(numbers.values()), **numbers}
        print_json({**_network_json(network), "memory": taken})
        return
    print_table(
        ["layer", "type", "takes", "gives", "parameters", "FLOPs", "nets"],
        [
            [
                layer.name,
                layer.flat.type,
                ", ".join(network.takes(layer.name)),
                f"{list(layer.inferred.output.shape)}",
                f"{layer.parameters:,}" if layer.parameters else "",
                f"{layer.inferred.flops:,}" if layer.inferred.flops else "",
                ", ".join(layer.flat.phase),
            ]
            for layer in network.layers.values()
        ],
    )
    note(
        f"{network.parameters:,} parameters; forward pass of one sample: {network.flops('train'):,} FLOPs in the"
        f" training net, {network.flops('test'):,} in the test net"
    )
    parts = ", ".join(f"{name} {_megabytes(value)}" for name, value in memory.items())
    note(
        f"a step of {batch_size} samples in fp32 with Adam: {_megabytes(sum(memory.values()))} ({parts})"
    )
    next_step("networks", "generate", file, "--to", f"{network.metadata.name}.py")


@app.command()
def generate(
    file: FileArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE", help="net.py: PyTorch; net.yaml: resolved; net.mmd: a picture."
        ),
    ],
) -> None:
    """Write a network as a PyTorch module with `TrainNet` and `TestNet`, as resolved YAML, or as a Mermaid flowchart.

    A file that was not generated is never replaced.
    """
    from airflow_training.networks.diagram import mermaid_text
    from airflow_training.networks.generator import GENERATED, module_text
    from airflow_training.networks.reading import read_network

    writers = {
        ".py": module_text,
        ".yaml": lambda network: f"# {GENERATED} from {file.name}\n{network.to_yaml()}",
        ".mmd": mermaid_text,
    }
    if to.suffix not in writers:
        raise fail("--to", "its ending says what is written", value=str(to), allowed=[*writers])
    text = writers[to.suffix](read_network(file))
    if to.exists() and GENERATED not in to.read_text(errors="replace").partition("\n")[0]:
        message = "is there, and was not generated"
        raise fail("--to", message, value=str(to), hint="another name, or remove it first")
    to.write_text(text, encoding="utf-8")
    note(f"wrote {to}")
    next_step("networks", "show", file)


@app.command("list")
def list_networks(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="All versions of this one.")] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """List the saved networks, each with its newest version."""
    store = open_store()
    if name:
        store.networks.find(name)  # says which there are
    found = store.networks.versions(name) if name else store.networks.newest()
    if output is OutputFormat.json:
        print_json({"networks": [_saved_json(each) for each in found]})
        return
    print_table(
        ["network", "version", "of", "saved", "digest", "description"],
        [
            [
                each.name,
                each.version,
                each.user,
                time_text(each.created),
                each.digest[:19],
                each.description,
            ]
            for each in found
        ],
    )
    if found:
        next_step("networks", "export", found[0].title, "--to", f"{found[0].name}.yaml")
    else:
        next_step("networks", "save", "FILE")


@app.command()
def save(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A document of kind Network.")
    ] = None,
    from_run: Annotated[
        str, typer.Option(metavar="RUN", help="Instead of FILE: the network that this run trains.")
    ] = "",
    name: Annotated[
        str, typer.Option(metavar="NAME", help="For --from-run: save it under this name.")
    ] = "",
    output: OutputOption = OutputFormat.table,
) -> None:
    """Save a network under its name, as the next version, for everybody who uses the store.

    A version never changes; what is saved already is not saved again. A name belongs to who saved it first.
    """
    from dataclasses import replace

    from airflow_training.documents.loading import read_file

    if (file is None) == (not from_run):
        raise fail("FILE", "name one", code="missing", allowed=["FILE", "--from-run RUN"])
    if name and not from_run:
        message = "is for --from-run: a file says its name in metadata.name"
        raise fail("--name", message, value=name)
    store = open_store()
    text = read_file(file) if file is not None else _network_of_run(store, from_run, name)
    try:
        saved = store.networks.save(text, user=user_name())
    except InputError as error:
        raise replace(error, path=str(file) if file else f"run {from_run}") from None
    if output is OutputFormat.json:
        print_json(_saved_json(saved))
        return
    note(f"{saved.title} is saved: {saved.digest[:19]}")
    next_step("networks", "list", saved.name)


@app.command()
def export(
    which: Annotated[
        str,
        typer.Argument(metavar="NAME[@VERSION]", help="A saved network; the newest by default."),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Where it is written.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a saved network to a file, as it was saved."""
    name, at, version = which.partition("@")
    if at and not (version.isascii() and version.isdigit() and len(version) < 10):
        message = "is no version: a whole number from 1"
        raise fail("NAME[@VERSION]", message, value=which, hint=f"{name}@1")
    saved = open_store().networks.find(name, int(version) if at else None)
    if to.exists() and not force and to.read_bytes() != saved.document.encode():
        raise fail("--to", "is there", value=str(to), hint="another name, or --force")
    to.write_text(saved.document, encoding="utf-8")
    note(f"wrote {to}: {saved.title} of {saved.user or 'nobody'}")
    next_step("networks", "show", to)


def _network_of_run(store: Store, run: str, name: str) -> str:
    """Return the text of the network that a run trains."""
    from airflow_training.networks.forking import forked_network

    job = store.job(store.find_run(run).uid)
    trainer = job.trainer
    if trainer is None:
        message = f"job {job.name} trains no network: it has no spec.trainer"
        raise fail("--from-run", message, code="bad_reference", value=run)
    return forked_network(trainer.network.document, name=name)


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


def _saved_json(saved: SavedNetwork) -> dict[str, Any]:
    return {
        "name": saved.name,
        "version": saved.version,
        "user": saved.user,
        "description": saved.description,
        "created": time_text(saved.created),
        "digest": saved.digest,
    }


def _network_json(network: ResolvedNetwork) -> dict[str, Any]:
    return {
        "name": network.metadata.name,
        "parameters": network.parameters,
        "flops": {phase: network.flops(phase) for phase in network.nets},
        "nets": {
            phase: {
                "inputs": [each.layer.name for each in net.inputs],
                "outputs": [*net.outputs],
                "losses": [each.layer.name for each in net.of_kind("loss")],
                "metrics": [each.layer.name for each in net.of_kind("metric")],
            }
            for phase, net in network.nets.items()
        },
        "layers": [
            {
                "name": layer.name,
                "type": layer.flat.type,
                "inputs": network.takes(layer.name),
                "params": layer.inferred.params,
                "phase": list(layer.flat.phase),
                "shape": list(layer.inferred.output.shape),
                "dtype": layer.inferred.output.dtype,
                "parameters": layer.parameters,
                "flops": layer.inferred.flops,
                "tiedTo": layer.flat.tied_to,
            }
            for layer in network.layers.values()
        ],
    }
