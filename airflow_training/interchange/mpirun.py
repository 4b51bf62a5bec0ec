"""`mpirun` and `mpiexec`, of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.interchange.launch import (
    Launch,
    LaunchSite,
    begin_launch,
    need_program,
    translate_options,
    whole_option,
)
from airflow_training.interchange.options import Argument, OptionSet, read_options

__all__ = ["read_mpirun"]

_MPIRUN = OptionSet(
    program="mpirun",
    values=frozenset(
        [
            "np",
            "n",
            "c",
            "host",
            "H",
            "hosts",
            "hostfile",
            "machinefile",
            "f",
            "npernode",
            "N",
            "ppn",
            "perhost",
            "x",
            "map-by",
            "bind-to",
            "rank-by",
            "wdir",
            "wd",
            "tag",
            "output-filename",
            "path",
            "prefix",
            "am",
            "tune",
            "cpu-set",
            "cpu-list",
            "timeout",
            "stdin",
            "iface",
            "launcher",
            "launcher-exec",
            "bootstrap",
            "mca-file",
            "ranks-per-proc",
        ]
    ),
    flags=frozenset(
        [
            "allow-run-as-root",
            "oversubscribe",
            "nooversubscribe",
            "report-bindings",
            "v",
            "q",
            "tag-output",
            "timestamp-output",
            "display-map",
            "display-allocation",
            "use-hwthread-cpus",
            "l",
            "prepend-rank",
            "print-rank-map",
            "enable-recovery",
            "disable-recovery",
            "bind-to-none",
            "bind-to-core",
            "bycore",
            "bynode",
            "byslot",
            "xml",
            "verbose",
            "quiet",
            "forward-signals",
        ]
    ),
    pairs=frozenset({"mca", "gmca", "prtemca", "pmixmca", "omca", "genv", "env"}),
    short={
        "n": "n",
        "c": "c",
        "H": "H",
        "x": "x",
        "N": "N",
        "v": "v",
        "q": "q",
        "l": "l",
        "f": "f",
    },
    single_dash=True,
)
_HOSTS = ("host", "H", "hosts")
_HOSTFILES = ("hostfile", "machinefile", "f")
_PER_NODE = ("npernode", "N", "ppn", "perhost")
_REACH = ("plm", "plm_rsh_agent", "plm_rsh_args", "orte_default_hostfile", "prte_default_hostfile")


def read_mpirun(program: Sequence[Argument], words: Sequence[Argument], site: LaunchSite) -> Launch:
    """Read a line of `mpirun`: a launcher and its workers."""
    line = read_options(words, _MPIRUN)
    found = begin_launch("mpi", site)
    found.keep(program)
    hosts = [each for each in (line.last(*_HOSTS) or "").split(",") if each]
    named = {each.partition(":")[0] for each in hosts}
    found.replicas = len(named) or site.nodes
    translate_options(
        line,
        ("spec", "roles", 1, "replicas"),
        "the hosts are the workers, which the hostfile of the framework names",
        *_HOSTS,
    )
    why = (
        "how many hosts there are is in the file: --host names them"
        if site.nodes == 1 and not hosts
        else ""
    )
    if why:
        line.refuse(why, *_HOSTFILES)
    else:
        line.drop("the framework writes a hostfile of the workers", *_HOSTFILES)
    total = whole_option(line, 0, "np", "n", "c")
    slots = whole_option(line, 0, *_PER_NODE)
    if not slots and hosts:
        counts = dict.fromkeys(named, 0)
        for each in hosts:
            host, _, count = each.partition(":")
            counts[host] += int(count) if count.isdecimal() else 1
        slots = max(counts.values())
    slots = slots or (-(-total // found.replicas) if total else site.tasks_per_node)
    if total and total > slots * found.replicas:
        source = line.words("np", "n", "c")[0].source
        message = f"{total} processes need more than {found.replicas} hosts with {slots} slots each"
        source.accounts.mistake(source.loc, "conflict", message)
    if slots > 1:
        found.parameters["slotsPerWorker"] = slots
    for name, value, option in line.options:
        if name in (*_HOSTS, *_HOSTFILES, "launcher", "launcher-exec", "bootstrap"):
            continue
        if name in ("mca", "prtemca", "gmca") and value.split()[:1] and value.split()[0] in _REACH:
            for word in option:
                word.source.refuse("says how hosts are reached, which is the framework's")
            continue
        found.keep(option)
    line.drop("how hosts are reached is the framework's", "launcher", "launcher-exec", "bootstrap")
    found.keep(line.rest)
    need_program(line, program)
    return found
