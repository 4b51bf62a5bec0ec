"""Which failures speak against nodes, and which nodes nothing is placed on, for all runs of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, RowMapping, Table, and_, delete, insert, select

from airflow_training.control.node_faults import (
    ExclusionRules,
    NodeExclusion,
    NodeFault,
    due_exclusions,
)
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.state.database import StorePart, clean, upsert
from airflow_training.state.models import NodeExclusionRow, NodeFaultRow, table_of

__all__ = ["Cluster", "NodeRecords"]

_LONGEST_NAME = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Whose nodes are meant: another cluster may have nodes of the same names."""

    runtime: str
    connection: str = ""
    """An Airflow connection, or whatever a job names; "": the default one."""

    @classmethod
    def of_job(cls, job: ResolvedJob) -> Cluster:
        """Name the cluster of a job."""
        return cls(runtime=job.runtime, connection=job.connection)

    def __str__(self) -> str:
        return f"{self.runtime} ({self.connection})" if self.connection else self.runtime


class NodeRecords(StorePart):
    """The failures that speak against nodes, and the nodes that are excluded."""

    def record(
        self, run: str, cluster: Cluster, faults: Sequence[NodeFault], *, rules: ExclusionRules
    ) -> Sequence[NodeExclusion]:
        """Record all faults of a run; return the nodes that are excluded for them now and were not before."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            connection.execute(delete(NodeFaultRow).where(NodeFaultRow.run == run))
            if faults:
                connection.execute(
                    insert(NodeFaultRow), [_fault_row(each, cluster) for each in faults]
                )
            found = due_exclusions(
                _faults(connection, cluster, after=now - rules.window_seconds),
                _exclusions(connection, cluster),
                rules=rules,
                now=now,
            )
            _put(connection, cluster, found)
        return found

    def exclude(self, cluster: Cluster, exclusion: NodeExclusion) -> None:
        """Exclude a node, or change until when and why it is."""
        with self._db.write() as connection:
            _put(connection, cluster, [exclusion])

    def allow(self, cluster: Cluster, node: str) -> bool:
        """Allow a node again; what failed there so far counts no more. False where it was not excluded."""
        with self._db.write() as connection:
            now = self._db.now(connection)
            before = _exclusions(connection, cluster).get(node)
            if before is None or not before.holds(now):
                return False
            table = table_of(NodeExclusionRow)
            connection.execute(
                table.update().where(_is_of(table, cluster), table.c.node == node).values(until=now)
            )
        return True

    def excluded(self, cluster: Cluster) -> Sequence[NodeExclusion]:
        """Return the nodes of a cluster that nothing is placed on now, by name."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            known = _exclusions(connection, cluster)
        return [known[node] for node in sorted(known) if known[node].holds(now)]

    def all_excluded(self) -> Sequence[tuple[Cluster, NodeExclusion]]:
        """The nodes that are excluded now, with their clusters, by name."""
        with self._db.read() as connection:
            now = self._db.now(connection)
            rows = connection.execute(
                select(table_of(NodeExclusionRow)).order_by(
                    NodeExclusionRow.runtime, NodeExclusionRow.connection, NodeExclusionRow.node
                )
            ).mappings()
            found = [
                (Cluster(runtime=row["runtime"], connection=row["connection"]), _exclusion(row))
                for row in rows
            ]
        return [each for each in found if each[1].holds(now)]


def _is_of(table: Table, cluster: Cluster) -> ColumnElement[bool]:
    return and_(table.c.runtime == cluster.runtime, table.c.connection == cluster.connection)


def _exclusions(connection: Connection, cluster: Cluster) -> Mapping[str, NodeExclusion]:
    table = table_of(NodeExclusionRow)
    rows = connection.execute(select(table).where(_is_of(table, cluster)))
    return {row["node"]: _exclusion(row) for row in rows.mappings()}


def _exclusion(row: RowMapping) -> NodeExclusion:
    return NodeExclusion(**{name: row[name] for name in NodeExclusion.__dataclass_fields__})


def _put(connection: Connection, cluster: Cluster, found: Sequence[NodeExclusion]) -> None:
    upsert(
        connection,
        table_of(NodeExclusionRow),
        [
            {
                "runtime": cluster.runtime,
                "connection": cluster.connection,
                "node": each.node,
                "since": each.since,
                "until": each.until,
                "why": clean(each.why),
                "by": clean(each.by)[:_LONGEST_NAME],
            }
            for each in found
        ],
    )


def _fault_row(fault: NodeFault, cluster: Cluster) -> Mapping[str, object]:
    return {
        "run": fault.run,
        "role": fault.key.role,
        "index": fault.key.index,
        "epoch": fault.epoch,
        "attempt": fault.attempt,
        "runtime": cluster.runtime,
        "connection": cluster.connection,
        "node": clean(fault.node)[:_LONGEST_NAME],
        "at": fault.at,
        "blame": fault.blame,
        "why": clean(fault.why),
    }


def _faults(connection: Connection, cluster: Cluster, *, after: float) -> Sequence[NodeFault]:
    table = table_of(NodeFaultRow)
    rows = connection.execute(
        select(table).where(_is_of(table, cluster), table.c.at > after)
    ).mappings()
    return [
        NodeFault(
            run=row["run"],
            key=InstanceKey(row["role"], row["index"]),
            epoch=row["epoch"],
            attempt=row["attempt"],
            node=row["node"],
            at=row["at"],
            blame=row["blame"],
            why=row["why"],
        )
        for row in rows
    ]
