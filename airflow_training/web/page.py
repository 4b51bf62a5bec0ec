"""The page of a task's instances, as HTML that needs nothing else: no script, no other file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from urllib.parse import urlencode

from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry
from airflow_training.documents.text import headline
from airflow_training.state.store import RunState

__all__ = ["instances_page"]

_REFRESH_SECONDS = 5
_STYLE = """\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .25rem; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin-top: 1.5rem; }
th, td { text-align: left; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid #8884; }
td:first-child { white-space: nowrap; font-weight: 600; }
a { color: #2b6cb0; margin-right: .6rem; white-space: nowrap; }
b { font-weight: 600; padding: .1rem .5rem; border-radius: 1rem; background: #8883; }
b.running { background: #00ff0038; } b.succeeded { background: #00800045; }
b.failed { background: #ff000038; }
@media (prefers-color-scheme: dark) { a { color: #7cb5ec; } }
"""


def instances_page(state: RunState, *, role: str | None, query: Mapping[str, object]) -> str:
    """Return the page. `role`: only this one's; `query`: of the task, for the links to the logs.

    It loads itself again while the job lives.
    """
    job = state.ledger.job
    title = f"{state.record.job}: {f'role {role}' if role else 'all roles'}"
    why = _why(job.reason, job.message)
    rows = [
        _row(entry, query)
        for _, entry in sorted(state.ledger.instances.items())
        if role in (None, entry.role)
    ]
    table = (
        "<table><thead><tr><th>Instance<th>State<th>Why<th>Where<th>Logs</thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    refresh = f'<meta http-equiv="refresh" content="{_REFRESH_SECONDS}">'
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"{'' if job.state in TERMINAL_JOB_STATES else refresh}"
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>"
        f"<p>Job {_badge(job.state)} {escape(why if why != job.state else '')}</p>"
        f"<p>Run <code>{escape(state.record.key.run_id)}</code></p>"
        f"{table if rows else '<p>No instance was created yet.</p>'}</html>"
    )


def _row(entry: InstanceEntry, query: Mapping[str, object]) -> str:
    why = _why(entry.reason, entry.message)
    cells = [
        escape(str(entry.key)),
        _badge(entry.state),
        escape(why),
        escape(entry.node),
        "".join(_log_links(entry, query)),
    ]
    return f"<tr>{''.join(f'<td>{cell}' for cell in cells)}"


def _why(reason: str, message: str) -> str:
    """Return the words, then the one that names their kind."""
    words = headline(message, most=1000)
    if not words:
        return reason
    return words if not reason or reason in re.split("[^A-Za-z]+", words) else f"{words} ({reason})"


def _log_links(entry: InstanceEntry, query: Mapping[str, object]) -> Iterable[str]:
    """Yield one link per attempt, the newest first."""
    for attempt in range(entry.attempt, -1, -1):
        address = urlencode({**query, "role": entry.role, "index": entry.index, "attempt": attempt})
        yield f'<a href="log?{escape(address)}">attempt {attempt}</a>'


def _badge(state: str) -> str:
    return f'<b class="{escape(state.lower())}">{escape(state)}</b>'
