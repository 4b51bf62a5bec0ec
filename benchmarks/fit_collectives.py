"""Fit the constants of collectives on the shipped measurements, and say how well they carry over.

    python -m benchmarks.fit_collectives            # what would be fitted, and every error
    python -m benchmarks.fit_collectives --write    # into planning/data

Few constants: five of the protocol, and per family of links a latency and an efficiency, pulled towards
data sheets. Held out by hardware: constants fitted on the other devices, links as catalogued.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from airflow_training.planning.cost import collectives
from airflow_training.planning.cost.collectives import Protocol
from airflow_training.planning.cost.group import RankGroup, group_of
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import Link, NodeGroup
from airflow_training.planning.view.program import Collective

DATA = importlib.resources.files("airflow_training.planning").joinpath("data")
DEVICES: Mapping[str, str] = {
    "A100": "nvlink3",
    "V100": "nvlink2",
    "H200": "nvlink4",
    "B200": "nvlink5",
}
FAMILIES: Mapping[str, Sequence[str]] = {
    "nvlink2": ("nvlink2", "nvlink2-switch"),
    "nvlink3": ("nvlink3", "nvlink3-a800"),
    "nvlink4": ("nvlink4", "nvlink4-h800", "nvlink5"),
    "efa": ("efa",),
}
"""Links whose constants are one: nobody measured each of them."""
INFERRED = ("nvlink3-a800", "roce-100", 4)
"""The cluster of the rows that do not say theirs: its rates look like A800 with four NICs."""
ASSUMED_BYTES = 2**30
"""Of rows that give a bandwidth and no size: it is the one large messages reach."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row of the measurements."""

    hardware: str
    collective: Collective
    algorithm: collectives.Algorithm | None
    """The one it was made to use; None: NCCL chose."""
    seen: collectives.Algorithm | None
    """The faster one of ring and switch, where the source says so."""
    payload_bytes: float
    group: RankGroup
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """All that is fitted."""

    protocol: Protocol
    efficiency: Mapping[str, float]
    """By family of links."""
    latency: Mapping[str, float]


def rows() -> list[Measured]:
    """Return every row of the calibration file."""
    text = DATA.joinpath("calibration.json").read_text("utf-8")
    return [_row(row) for row in json.loads(text)["collectives"]]


def _row(row: Mapping[str, object]) -> Measured:
    name, _, chosen = str(row["op"]).partition("(")
    collective: Collective = "all_reduce"
    if name in ("all_gather", "reduce_scatter"):
        collective = name  # type: ignore[assignment] # one of the two, which mypy does not narrow to
    ranks, nodes = int(str(row["gpus"])), int(str(row["nodes"]))
    device = str(row["gpu"])
    payload = float(str(row.get("bytes", ASSUMED_BYTES)))
    share = (ranks - 1) / ranks * (2 if collective == "all_reduce" else 1)
    if "time_us" in row:
        taken = float(str(row["time_us"])) * 1e-6
    else:
        taken = payload * share / (float(str(row["busbw_GBps"])) * 1e9)
    algorithm: collectives.Algorithm | None = None
    if chosen:
        algorithm = "in-network" if chosen.startswith("NVLS") else "ring"
    if device in DEVICES:
        group = _group(DEVICES[device], "efa-400", 8, ranks=ranks, stride=1)
    else:
        device = "inferred"
        stride = 1 if row["consecutive"] else 8 * nodes // ranks
        group = _group(*INFERRED, ranks=ranks, stride=stride)
    return Measured(
        hardware=device,
        collective=collective,
        algorithm=algorithm,
        seen=_seen(row, payload),
        payload_bytes=payload,
        group=group,
        seconds=taken,
    )


def _seen(row: Mapping[str, object], payload: float) -> collectives.Algorithm | None:
    if "(NVLS from ~2 MiB)" in str(row.get("link")):
        return "in-network" if payload >= SWITCHES_AT[1] else "ring"
    # measured both ways, the switch was faster
    return "in-network" if "(" in str(row["op"]) else None


def _group(link: str, nic: str, nics: int, *, ranks: int, stride: int) -> RankGroup:
    nodes = NodeGroup(
        name="measured",
        count=4,
        device=catalogue.device("A100"),
        devices_per_node=8,
        intra_node=catalogue.link(link),
        nic=catalogue.link(nic),
        nics_per_node=nics,
    )
    return group_of(nodes, size=float(ranks), stride=float(stride))


def predicted(row: Measured, constants: Constants | None = None) -> float:
    """Return the seconds of a row, with the shipped constants or with others."""
    group, protocol = row.group, None
    if constants is not None:
        protocol = constants.protocol
        group = dataclasses.replace(
            group,
            intra_node=_refitted(group.intra_node, constants),
            nic=None if group.nic is None else _refitted(group.nic, constants),
        )
    arguments = (row.collective, row.payload_bytes, group)
    if row.algorithm is not None:
        return float(collectives.algorithms(*arguments, protocol=protocol)[row.algorithm])
    return float(collectives.seconds(*arguments, protocol=protocol))


def _family(link: str) -> str | None:
    for family, members in FAMILIES.items():
        if link in members or (link.startswith("efa-") and family == "efa"):
            return family
    return None


def _refitted(link: Link, constants: Constants) -> Link:
    family = _family(link.name)
    if family is None or family not in constants.efficiency:
        return link
    return dataclasses.replace(
        link,
        efficiency=constants.efficiency[family],
        latency_seconds=constants.latency[family],
    )


PRIOR = {
    "base_seconds": 15e-6,
    "fill_seconds": 4e-6,
    "in_network_seconds": 15e-6,
    "in_network_efficiency": 0.7,
    "tree_efficiency": 0.9,
}
LINK_PRIOR = {"nvlink": (0.85, 2e-6), "efa": (0.9, 50e-6)}
"""Efficiency and latency; NCCL's own tables say 1.9 us a hop on NVLink."""
SPREAD = 0.5
"""Standard deviation of the priors, in logs; that of a measurement is 0.1."""
SWITCHES_AT = (2**20, 2**21)
"""An H200 node was seen to go from rings to its switch about here (bytes)."""


def fit(measured: Sequence[Measured]) -> Constants:
    """Return the constants that explain the rows best; robust, on logarithms."""
    families = sorted({family for row in measured for family in _families_of(row)})
    start = np.log([*PRIOR.values(), *_start(families)])

    def residuals(logs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        constants = _constants(logs, families)
        errors = [np.log(predicted(row, constants) / row.seconds) / 0.1 for row in measured]
        return np.concatenate([errors, (logs - start) / SPREAD, _switching(constants)])

    high = np.log([1.0 if each > 0.1 else 1e-3 for each in np.exp(start)])
    found = least_squares(residuals, start, bounds=(-np.inf, high), loss="soft_l1")
    return _constants(found.x, families)


def _families_of(row: Measured) -> set[str]:
    links = [row.group.intra_node]
    if row.group.nic is not None and float(row.group.nodes) > 1:
        links.append(row.group.nic)
    return {family for link in links if (family := _family(link.name)) is not None}


def _start(families: Sequence[str]) -> list[float]:
    priors = [LINK_PRIOR["efa" if family == "efa" else "nvlink"] for family in families]
    latencies = [LINK_PRIOR["nvlink"][1], LINK_PRIOR["efa"][1]]
    return [efficiency for efficiency, _ in priors] + latencies


def _constants(logs: npt.NDArray[np.float64], families: Sequence[str]) -> Constants:
    values = np.exp(logs)
    protocol = Protocol(**dict(zip(PRIOR, map(float, values), strict=False)))
    efficiencies = values[len(PRIOR) : len(PRIOR) + len(families)]
    nvlink, efa = values[-2:]
    return Constants(
        protocol=protocol,
        efficiency=dict(zip(families, map(float, efficiencies), strict=True)),
        latency={each: float(efa if each == "efa" else nvlink) for each in families},
    )


def _switching(constants: Constants) -> list[float]:
    """Pull ring and switch towards being equally fast between two sizes."""
    group = _group("nvlink4", "efa-400", 8, ranks=8, stride=1)
    group = dataclasses.replace(group, intra_node=_refitted(group.intra_node, constants))
    ratios = []
    for size in SWITCHES_AT:
        times = collectives.algorithms("all_reduce", size, group, protocol=constants.protocol)
        ratios.append(float(np.log(times["ring"] / times["in-network"])))
    below, above = ratios
    return [100 * max(0.0, below + 0.01), 100 * max(0.0, 0.01 - above)]


def errors(measured: Sequence[Measured], constants: Constants | None) -> npt.NDArray[np.float64]:
    """Return the relative errors, signed."""
    return np.array([predicted(row, constants) / row.seconds - 1 for row in measured])


def show(title: str, measured: Sequence[Measured], constants: Constants | None) -> None:
    """Print the errors by hardware, size of the group and operation."""
    print(f"\n{title}")
    every = np.abs(errors(measured, constants))
    print(f"  all {len(measured):4} rows: median {np.median(every):.1%}, mean {every.mean():.1%}")
    kinds = sorted({(row.hardware, int(row.group.ranks), row.collective) for row in measured})
    for hardware, ranks, collective in kinds:
        chosen = [
            error
            for row, error in zip(measured, every, strict=True)
            if (row.hardware, int(row.group.ranks), row.collective) == (hardware, ranks, collective)
        ]
        print(
            f"  {hardware:8} {ranks:3} ranks {collective:14} {len(chosen):3} rows: "
            f"median {np.median(chosen):6.1%}, worst {max(chosen):6.1%}"
        )


def choices(measured: Sequence[Measured]) -> tuple[int, int]:
    """Return for how many rows the faster of ring and switch is chosen, and of how many it is known."""
    known = [row for row in measured if row.seen is not None]
    right = [
        row
        for row in known
        if collectives.fastest(row.collective, row.payload_bytes, row.group) == row.seen
    ]
    return len(right), len(known)


def hold_out(measured: Sequence[Measured]) -> None:
    """Print the error on each hardware with constants fitted on the others."""
    print("\nheld out by hardware: constants of the others, links by their prior")
    for hardware in DEVICES:
        seen = [row for row in measured if row.hardware not in (hardware, "inferred")]
        unseen = [row for row in measured if row.hardware == hardware]
        constants = with_priors(fit(seen))
        every = np.abs(errors(unseen, constants))
        print(f"  {hardware}: median {np.median(every):.1%}, mean {every.mean():.1%}")


def with_priors(constants: Constants) -> Constants:
    """Give every family that was not seen what a data sheet would say."""
    efficiency, latency = dict(constants.efficiency), dict(constants.latency)
    nvlink = [constants.latency[each] for each in constants.latency if each != "efa"]
    for family in FAMILIES:
        share, hop = LINK_PRIOR["efa" if family == "efa" else "nvlink"]
        efficiency.setdefault(family, share)
        latency.setdefault(family, hop if family == "efa" else nvlink[0])
    return Constants(protocol=constants.protocol, efficiency=efficiency, latency=latency)


def write(constants: Constants, folder: Path) -> None:
    """Put the constants into the shipped data, rounded to three digits."""
    target = folder / "collectives.json"
    data = json.loads(target.read_text("utf-8"))
    data["constants"] = {
        key: _rounded(value) for key, value in dataclasses.asdict(constants.protocol).items()
    }
    target.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    links = folder / "links.json"
    lines = []
    for line in links.read_text("utf-8").splitlines():
        entry = json.loads(line.rstrip(",")) if line.startswith("    {") else {}
        family = _family(entry.get("name", ""))
        if family is not None:
            entry["efficiency"] = _rounded(constants.efficiency[family])
            entry["latency_seconds"] = _rounded(constants.latency[family])
            line = f"    {json.dumps(entry)}{',' if line.endswith(',') else ''}"
        lines.append(line)
    links.write_text("\n".join(lines) + "\n", "utf-8")


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="into planning/data")
    arguments = parser.parse_args()
    measured = rows()
    stated = [row for row in measured if row.hardware != "inferred"]
    show("shipped constants", measured, None)
    right, known = choices(measured)
    print(f"  the faster of ring and switch is chosen in {right} of {known} rows")
    constants = fit(stated)
    show("fitted anew", stated, constants)
    print(json.dumps(dataclasses.asdict(constants), indent=2))
    hold_out(measured)
    if arguments.write:
        write(constants, Path(str(DATA)))


if __name__ == "__main__":
    main()
