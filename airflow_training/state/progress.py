"""How far instances are: the newest report of progress of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, select

from airflow_training.control.attempts import INLINE
from airflow_training.control.data_readings import DataReading
from airflow_training.control.model import InstanceEntry
from airflow_training.control.reports import ProgressReport, ReportedValue
from airflow_training.control.system_metrics import SAMPLES
from airflow_training.documents.instances import InstanceKey
from airflow_training.state import data_readings
from airflow_training.state.codec import compact_json, from_json
from airflow_training.state.database import StorePart, upsert
from airflow_training.state.metrics import metric_row
from airflow_training.state.models import InstanceRow, MetricRow, ProgressRow, table_of
from airflow_training.state.run_lookup import must_exist

__all__ = ["ReportedProgress", "StoredProgress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProgress:
    """What a row holds."""

    report: ProgressReport = field(metadata=INLINE)
    from_log: bool = False
    """Its log says so, not the script itself; nobody outside the store sees that."""

    def row(self, uid: str, key: InstanceKey) -> Mapping[str, Any]:
        return {"run": uid, "role": key.role, "index": key.index, "body": compact_json(self)}


class ReportedProgress(StorePart):
    """What instances report of themselves."""

    def save(self, uid: str, progress: Mapping[InstanceKey, ProgressReport]) -> None:
        """Keep the newest report per instance, append its points, and take what it says of data.

        A metric of the report without any is a point at the script's time, else now; so is the number of its samples.
        """
        with self._db.write() as connection:
            must_exist(connection, uid)
            now = self._db.now(connection)
            reports = [StoredProgress(report=each).row(uid, key) for key, each in progress.items()]
            upsert(connection, table_of(ProgressRow), reports)
            points = {
                (*key, row["name"], row["at"]): row
                for key, report in progress.items()
                for row in _points(uid, key, report, now=now)
            }
            # a key that came twice is one row: a database may refuse to write it twice in one statement
            upsert(connection, table_of(MetricRow), [*points.values()])
            data_readings.save(connection, uid, progress, now=now)

    def newest(self, uid: str) -> Mapping[InstanceKey, ProgressReport]:
        """Return the newest report per (role, index), without its points and files."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(ProgressRow.role, ProgressRow.index, ProgressRow.body)
                .where(ProgressRow.run == uid)
                .order_by(ProgressRow.role, ProgressRow.index)
            )
            return {
                InstanceKey(role, index): from_json(StoredProgress, body).report
                for role, index, body in rows
            }

    def of_runs(
        self, uids: Sequence[str], *, instances: int
    ) -> Mapping[str, Sequence[tuple[InstanceEntry, ProgressReport]]]:
        """Return entry and newest report of the first so many instances of each role, in one query."""
        found: dict[str, list[tuple[InstanceEntry, ProgressReport]]] = {}
        place = (ProgressRow.run, ProgressRow.role, ProgressRow.index)
        same = zip(place, (InstanceRow.run, InstanceRow.role, InstanceRow.index), strict=True)
        with self._db.read() as connection:
            for run, entry, body in connection.execute(
                select(ProgressRow.run, InstanceRow.entry, ProgressRow.body)
                .join(InstanceRow, and_(*(one == other for one, other in same)))
                .where(ProgressRow.run.in_(uids), ProgressRow.index < instances)
                .order_by(*place)
            ):
                report = from_json(StoredProgress, body).report
                found.setdefault(run, []).append((from_json(InstanceEntry, entry), report))
        return found

    def data_readings(self, uid: str) -> Mapping[InstanceKey, DataReading]:
        """Data readings of each instance, per (role, index)."""
        with self._db.read() as connection:
            return data_readings.of_run(connection, uid)


def _points(
    uid: str, key: InstanceKey, report: ProgressReport, *, now: float
) -> Iterator[Mapping[str, Any]]:
    at = now if report.time is None else report.time
    told = {**report.metrics, **({} if report.samples is None else {SAMPLES: report.samples})}
    newest = {name: [ReportedValue(report.step, at, value)] for name, value in told.items()}
    for name, points in {**newest, **report.points}.items():
        for each in points:
            yield metric_row(uid, key, name=name, at=each.time, step=each.step, value=each.value)
