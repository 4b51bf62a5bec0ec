"""What the state of the run makes of a cause: from where another try goes on, and that one meets the same limit. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_training.logs.diagnosis.markers import CHECKPOINT, PREPARING, RESTARTED
from airflow_training.logs.model import Diagnosis, FileScan, FoundCause, Hit

__all__ = ["in_situation"]

_STEP = re.compile(
    r"(?i)(?:step|iteration|iter|update|batch)s?[ _=:@-]{0,9}(?P<a>\d+)|\b(?P<b>\d+) (?:updates|iterations|iters|steps)"
    r"|checkpoint[-_/](?P<c>\d+)|/(?P<d>\d+)(?=[^\w/]*$)|model_(?P<e>\d+)\.pth"
)
_NOT_SAVED = re.compile(
    r"(?i)\b(?:fail|error|unable|could not|cannot|will|would|every|skip|interval|no checkpoint|if|not)"
)
_SETUP = re.compile(
    r"(?i)(?<!modify_qp failed with error )no such device|no data available|not (?:supported|permitted|implemented)|permission denied|invalid argument"
    r"|address family|no socket interface|(?:unable to|couldn't|could not|cannot) find|undefined symbol|no (?:\w+ )?provider"
)
"""Devices, providers and rights that are not there; what times out, is refused or reset may be better the next time, and so may a
queue pair whose peer's port went away."""
_PASSES = re.compile(
    r"(?i)too ?many ?requests|(?:status|http|code)[ =:(]{0,3}(?:429|50[0234])\b|\b(?:429|50[0234]) (?:server|bad gateway|service|gateway|internal)"
    r"|timed out|time-?out(?:error| (?:exceeded|expired|while|waiting))|tempor\w+ (?:failure|unavailable)|try again|connection (?:reset|refused|closed)"
    r"|rate limit|slow ?down|(?:server|service|is) overloaded|handshake|service unavailable"
)
"""What a server or a network says that may be well again soon."""
_TRIED = re.compile(r"\(tried \d+ times\)")
_LONGEST = 80


def in_situation(found: Diagnosis, scans: Sequence[FileScan]) -> Diagnosis:
    """Return a diagnosis whose first answer says what the logs tell of another try."""
    if not found.causes or found.causes[0].id not in _SITUATIONS:
        return found
    root, *others = found.causes
    return replace(found, causes=(_SITUATIONS[root.id](root, scans), *others))


def _goes_on(root: FoundCause, scans: Sequence[FileScan]) -> FoundCause:
    """Return the cause with the checkpoint that another try goes on from, if one was saved."""
    saved = _last_saved(scans)
    if saved is None:
        return root
    place, step = saved
    where = f"{place}: step {step:g}" if step is not None else place
    again = f"another try goes on from the last checkpoint ({where})"
    return replace(root, retryable="yes", advice=f"{root.advice.rstrip('.')}; {again}.")


def _last_saved(scans: Iterable[FileScan]) -> tuple[str, float | None] | None:
    """Return where the newest checkpoint was saved, and of which step, as far as that is told."""
    saved = [
        (_step_of(hit, scan), scan.origin.file, hit.line)
        for scan in scans
        for hit in scan.hits
        if hit.signature == CHECKPOINT and not _NOT_SAVED.search(hit.text)
    ]
    if not saved:
        return None
    step, file, line = max(saved, key=lambda each: (each[0] is not None, each[0] or 0, each[2]))
    return f"{file}:{line}", step


def _step_of(hit: Hit, scan: FileScan) -> float | None:
    """Return the step that a line names, else the last one that was reported above it."""
    named = _STEP.search(hit.text)
    if named is not None:
        return float(next(group for group in named.groups() if group))
    return _last_step(scan, before=hit.line, rank=hit.rank)


def _last_step(scan: FileScan, *, before: float, rank: int | None) -> float | None:
    steps = [
        step
        for series in scan.series
        if rank is None or series.rank in (None, rank)
        for line, step in zip(series.lines.tolist(), series.steps.tolist(), strict=True)
        if line < before and not math.isnan(step)
    ]
    return max(steps, default=None)


def _prepares(root: FoundCause, scans: Sequence[FileScan]) -> FoundCause:
    """Return a time-out of ranks that wait with what another one was still doing, if its log shows it."""
    busy = [
        (scan, hit)
        for scan in scans
        for hit in _last_of_ranks(scan, root)
        if not _is_done(hit) and _is_last_word(hit, scan)
    ]
    if not busy:
        return root
    scan, hit = busy[0]
    who = "a rank" if hit.rank is None else f"rank {hit.rank}"
    told = (
        f"{who} was still preparing data ({scan.origin.file}:{hit.line}: {_short(hit.text)}) while the others waited:"
        " another try meets the same limit. Prepare the data before the job or keep it in a cache,"
        " or raise the timeout above the time that this takes"
    )
    return replace(root, retryable="no", advice=f"{told[0].upper()}{told[1:]}.")


def _of_its_node(root: FoundCause, scans: Sequence[FileScan]) -> FoundCause:
    """Return a fault of driver or GPU with whether only one of several nodes has it: another one may do."""
    having = {scan.origin.file for scan in scans for hit in scan.hits if _is_of(root, hit)}
    others = [scan.origin.file for scan in scans if scan.origin.file not in having]
    if root.file is None or not others:
        return root
    told = f"only {root.file} tells of it, {len(others)} of {len(scans)} logs do not: another node may do"
    return replace(root, retryable="once", advice=f"{root.advice.rstrip('.')}; {told}.")


def _may_pass(root: FoundCause, _: Sequence[FileScan]) -> FoundCause:
    """Return what mostly is of the set-up with whether its text speaks of a server or network that may be well again."""
    if root.retryable != "no" or not _PASSES.search(root.evidence):
        return root
    return replace(root, retryable="once")


def _of_its_setup(root: FoundCause, _: Sequence[FileScan]) -> FoundCause:
    """Return an error of a communication library with whether its text speaks of what every try finds again."""
    if root.retryable == "no" or not _SETUP.search(root.evidence):
        return root
    return replace(root, retryable="no")


def _is_of(root: FoundCause, hit: Hit) -> bool:
    return hit.signature.partition("/")[0] == root.id


def _reads_it_again(root: FoundCause, scans: Sequence[FileScan]) -> FoundCause:
    """Return a checkpoint that cannot be read with whether the launcher's own next try has just read the same file."""
    again = any(
        hit.signature == RESTARTED and hit.line < (root.line or 0)
        for scan in scans
        for hit in scan.hits
        if scan.origin.file == root.file
    )
    if not again:
        return root
    told = "it was read by a try of the launcher already, and the next one reads the same file: remove it, or name an earlier one"
    return replace(root, retryable="no", advice=f"{root.advice.rstrip('.')}; {told}.")


def _may_come_back(root: FoundCause, _: Sequence[FileScan]) -> FoundCause:
    """Return an upload that failed with whether the storage was only away: the agent then has tried it again."""
    if not _TRIED.search(root.evidence):
        return root
    return replace(root, retryable="once")


def _last_of_ranks(scan: FileScan, root: FoundCause) -> Iterable[Hit]:
    """Return the last line of each rank about data that are prepared, before the others gave up."""
    until = math.inf if scan.origin.file != root.file or root.line is None else root.line
    told = (hit for hit in scan.hits if hit.signature == PREPARING and hit.line <= until)
    return {hit.rank: hit for hit in told}.values()


def _is_done(hit: Hit) -> bool:
    """Return whether a bar came to its end."""
    return "100%" in hit.text


def _is_last_word(hit: Hit, scan: FileScan) -> bool:
    """Return whether a rank prepared data to the last: it has not trained after that."""
    trained = _last_step(scan, before=math.inf, rank=hit.rank)
    return trained is None or _last_step(scan, before=hit.line, rank=hit.rank) == trained


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_SITUATIONS: Mapping[str, Callable[[FoundCause, Sequence[FileScan]], FoundCause]] = {
    **dict.fromkeys(("time-limit", "preempted", "evicted", "node-lost"), _goes_on),
    **dict.fromkeys(
        ("cuda-driver-mismatch", "gpu-not-available", "gpu-arch-unsupported"), _of_its_node
    ),
    "nccl-unhandled-system-error": _of_its_setup,
    **dict.fromkeys(("image-pull-failure", "python-exception"), _may_pass),
    "output-failed": _may_come_back,
    "checkpoint-corrupt": _reads_it_again,
    **dict.fromkeys(("nccl-timeout", "rendezvous-timeout", "hang"), _prepares),
}
"""Id of a cause -> what is looked for."""
