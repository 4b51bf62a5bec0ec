"""Networks that are saved, and checks of those that are not yet. Every handler runs in a thread."""

from __future__ import annotations

from fastapi import APIRouter, Depends, HTTPException, Path

from airflow_training.documents.loading import load_documents
from airflow_training.errors import InputError, Problem
from airflow_training.state.store import open_store
from airflow_training.web.networks import (
    NetworkCheckAnswer,
    NetworkRequest,
    NetworkVersion,
    NetworkVersionPage,
    NetworkVersionText,
    check_network,
    version_answer,
    version_text,
)
from airflow_training.web.request_size import DocumentRoute
from airflow_training.web.rights import UserDep, from_own_page, known, submit_new

__all__ = ["router"]

router = APIRouter(route_class=DocumentRoute)

_MAY_READ = [Depends(known)]
_MAY_WRITE = [Depends(submit_new), Depends(from_own_page)]


@router.get("/networks", dependencies=_MAY_READ)
def networks() -> NetworkVersionPage:
    """Return the newest version of every saved network."""
    return NetworkVersionPage(networks=[*map(version_answer, open_store().networks.newest())])


@router.get("/networks/{name}", dependencies=_MAY_READ)
def versions(name: str) -> NetworkVersionPage:
    """Return all versions of a network, the newest first."""
    found = open_store().networks.versions(name)
    if not found:
        raise HTTPException(404, f"no network '{name}' is saved")
    return NetworkVersionPage(networks=[*map(version_answer, found)])


@router.get("/networks/{name}/{version}", dependencies=_MAY_READ)
def network(name: str, version: int = Path(ge=1, le=2**31 - 1)) -> NetworkVersionText:
    """Return a version with its document."""
    try:
        return version_text(open_store().networks.find(name, version))
    except InputError as error:
        raise HTTPException(404, str(error)) from error


@router.put("/networks/{name}", dependencies=_MAY_WRITE)
def save(name: str, asked: NetworkRequest, user: UserDep) -> NetworkVersion:
    """Save a document as the next version; 422 with its mistakes, 403 where the name is another user's."""
    _check_name(asked.document, name)
    try:
        return version_answer(open_store().networks.save(asked.document, user=user.name))
    except InputError as error:
        if any(problem.code == "not_owner" for problem in error.problems):
            raise HTTPException(403, str(error)) from error
        raise


@router.post("/networks/check", dependencies=_MAY_WRITE)
def check(asked: NetworkRequest) -> NetworkCheckAnswer:
    """List the mistakes of a document, or shapes, parameters and operations of its layers."""
    return check_network(asked.document)


def _check_name(text: str, name: str) -> None:
    """Raise InputError where a document names itself otherwise than the request; other mistakes are told by saving."""
    documents = load_documents(text)
    data = documents[0].data if len(documents) == 1 else None
    metadata = data.get("metadata") if isinstance(data, dict) else None
    own = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(own, str) and own != name:
        raise InputError(
            problems=[
                Problem(
                    code="conflict",
                    field="metadata.name",
                    value=own,
                    message=f"is saved as '{name}'",
                    allowed=[name],
                    line=documents[0].lines.of("metadata.name"),
                )
            ]
        )
