"""What instances read: how evenly, how fast, and who waits. Models of the answers, and pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pydantic import BaseModel

from airflow_training.control.data_readings import DataReading, ReadingPoint, rate_of, stall_limit
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry
from airflow_training.control.rollup import timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.frameworks.ranks import data_files
from airflow_training.state.records import RunState

__all__ = ["DataPage", "FilePage", "data_page", "file_page", "imbalance_of", "stalled_seconds"]

_MOST_STALLS = 100


class InstanceData(BaseModel):
    """What one instance has read. None: it tells nothing of that."""

    role: str
    index: int
    rank: int | None
    node: str
    state: str
    step: int | None
    samples: int | None
    samples_per_second: float | None
    read: float | None
    """Of all its files, in the unit that the script counts in."""
    read_per_second: float | None
    files_known: int
    files_done: int
    stalled_seconds: float | None
    """How long it has been waiting; None: it is not."""
    stall_count: int
    stall_seconds: float
    """Of all stalls, the present one too."""


class Imbalance(BaseModel):
    """How unevenly samples are spread over instances."""

    percent: float
    """How much more the most is than the least, of the mean."""
    mean: float
    most: str
    least: str


class StallAnswer(BaseModel):
    role: str
    index: int
    started_at: str
    seconds: float
    step: int | None
    over: bool


class DataPage(BaseModel):
    instances: list[InstanceData]
    imbalance: Imbalance | None
    """Of all instances; of a role in `imbalances`, where several of it tell their samples."""
    imbalances: dict[str, Imbalance]
    samples: int | None
    """Of all instances together, as are the rates."""
    samples_per_second: float | None
    read_per_second: float | None
    stalls: list[StallAnswer]
    """The newest first."""


class FileAnswer(BaseModel):
    """A file, and who reads it."""

    name: str
    role: str
    index: int
    node: str
    read: float | None
    """None: the job gives it to the instance, which has not told of it."""
    total: float | None


class FilePage(BaseModel):
    files: list[FileAnswer]
    more: bool


def data_page(
    state: RunState, readings: Mapping[InstanceKey, DataReading], *, now: float
) -> DataPage:
    """Data read by all instances, in the order of their ranks."""
    over = state.ledger.job.state in TERMINAL_JOB_STATES
    instances: list[InstanceData] = []
    stalls: list[StallAnswer] = []
    for entry in _instances(state):
        reading = readings.get(entry.key)
        waits = None if reading is None or over else stalled_seconds(reading, entry.state, now=now)
        instances.append(_instance(state, entry, reading, waits))
        stalls += [] if reading is None else _stalls(entry.key, reading, waits)
    by_role: dict[str, dict[str, int]] = {}
    for each in instances:
        if each.samples is not None:
            by_role.setdefault(each.role, {})[f"{each.role}-{each.index}"] = each.samples
    counts = {name: samples for told in by_role.values() for name, samples in told.items()}
    return DataPage(
        instances=instances,
        imbalance=imbalance_of(counts),
        imbalances={role: found for role, told in by_role.items() if (found := imbalance_of(told))},
        samples=sum(counts.values()) if counts else None,
        samples_per_second=_sum([each.samples_per_second for each in instances]),
        read_per_second=_sum([each.read_per_second for each in instances]),
        stalls=sorted(stalls, key=lambda each: each.started_at, reverse=True)[:_MOST_STALLS],
    )


def file_page(
    state: RunState,
    readings: Mapping[InstanceKey, DataReading],
    *,
    instance: InstanceKey | None,
    text: str,
    limit: int,
) -> FilePage:
    """Return the files of one instance or of all, those read last first; with `text` in their names."""
    entries = [each for each in _instances(state) if instance in (None, each.key)]
    words = text.lower()
    found = (
        each
        for entry in entries
        for each in _files(state, entry, readings.get(entry.key))
        if words in each.name.lower()
    )
    files = list(islice(found, limit + 1))
    return FilePage(files=files[:limit], more=len(files) > limit)


def imbalance_of(samples: Mapping[str, int]) -> Imbalance | None:
    """Return how unevenly samples are spread; None for fewer than two instances, or before any."""
    mean = sum(samples.values()) / len(samples) if samples else 0.0
    if len(samples) < 2 or mean <= 0:
        return None
    most, least = max(samples, key=samples.__getitem__), min(samples, key=samples.__getitem__)
    percent = 100 * (samples[most] - samples[least]) / mean
    return Imbalance(percent=percent, mean=mean, most=most, least=least)


def stalled_seconds(reading: DataReading, state: str, *, now: float) -> float | None:
    """Return for how long a running instance has been waiting for data; None: it is not."""
    waits = now - reading.since
    busy = state != "running" or reading.section or reading.over
    return None if busy or waits <= stall_limit(reading.points) else waits


def _instances(state: RunState) -> list[InstanceEntry]:
    order = {role.name: number for number, role in enumerate(state.job.roles)}
    return sorted(
        (each for each in state.ledger.instances.values() if not each.retired),
        key=lambda each: (order.get(each.role, len(order)), each.index),
    )


def _instance(
    state: RunState, entry: InstanceEntry, reading: DataReading | None, waits: float | None
) -> InstanceData:
    points = () if reading is None else reading.points
    last = points[-1] if points else None
    first = next((each.rank_offset for each in state.job.roles if each.name == entry.role), None)
    files = None if reading is None else reading.files
    return InstanceData(
        role=entry.role,
        index=entry.index,
        rank=None if first is None else first + entry.index,
        node=entry.node,
        state=entry.state,
        step=None if last is None else last.step,
        samples=None if last is None else last.samples,
        samples_per_second=_rate(points, "samples", waits),
        read=None if last is None else last.read,
        read_per_second=_rate(points, "read", waits),
        files_known=0 if files is None else files.known,
        files_done=0 if files is None else files.done,
        stalled_seconds=waits,
        stall_count=0 if reading is None else reading.stall_count + (waits is not None),
        stall_seconds=0.0 if reading is None else reading.stall_seconds + (waits or 0.0),
    )


def _rate(points: Sequence[ReadingPoint], what: str, waits: float | None) -> float | None:
    rate = rate_of(points, what)
    return rate if rate is None or waits is None else 0.0


def _sum(rates: Sequence[float | None]) -> float | None:
    known = [each for each in rates if each is not None]
    return sum(known) if known else None


def _stalls(key: InstanceKey, reading: DataReading, waits: float | None) -> Iterator[StallAnswer]:
    role, index = key
    for each in reading.stalls:
        yield StallAnswer(
            role=role,
            index=index,
            started_at=timestamp(each.started_at) or "",
            seconds=each.seconds,
            step=each.step,
            over=True,
        )
    if waits is not None:
        yield StallAnswer(
            role=role,
            index=index,
            started_at=timestamp(reading.since) or "",
            seconds=waits,
            step=reading.points[-1].step,
            over=False,
        )


def _files(
    state: RunState, entry: InstanceEntry, reading: DataReading | None
) -> Iterator[FileAnswer]:
    told = () if reading is None or reading.files is None else reading.files.newest
    place = {"role": entry.role, "index": entry.index, "node": entry.node}
    for each in told:
        yield FileAnswer(name=each.name, read=each.read, total=each.total, **place)
    known = {each.name for each in told} | {each.name.rpartition("/")[2] for each in told}
    is_all = reading is not None and reading.files is not None and reading.files.known == len(told)
    if told and is_all and state.job.trainer is not None:
        return  # our trainer cuts by samples: it tells in which files those of a rank lie
    replicas = {name: role.replicas for name, role in state.ledger.roles.items()}
    for name in data_files(state.job, entry.role, entry.index, replicas=replicas):
        if name not in known:
            yield FileAnswer(name=name, read=None, total=None, **place)
