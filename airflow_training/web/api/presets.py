"""What a training may begin with: the presets that come with us, and those that users have saved."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from pydantic import BaseModel, Field

from airflow_training.control.rollup import timestamp
from airflow_training.state.presets import PresetVersion
from airflow_training.state.store import open_store
from airflow_training.web.document_check import MOST_CHARACTERS
from airflow_training.web.presets import shipped_presets
from airflow_training.web.request_size import DocumentRoute
from airflow_training.web.rights import UserDep, from_own_page, known, may_submit_new, submit_new

__all__ = ["router"]

router = APIRouter(route_class=DocumentRoute)

_LONGEST_NAME = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class ShippedPresetAnswer(BaseModel):
    name: str
    title: str
    description: str
    document: str


class SavedPresetAnswer(BaseModel):
    """The newest version of a preset that somebody has saved."""

    name: str
    user: str
    version: int
    description: str
    created: str


class PresetPage(BaseModel):
    shipped: list[ShippedPresetAnswer]
    saved: list[SavedPresetAnswer]


class PresetDocument(BaseModel):
    document: str


class SavePresetRequest(BaseModel):
    name: str = Field(min_length=1, max_length=_LONGEST_NAME)
    document: str = Field(min_length=1, max_length=MOST_CHARACTERS)
    description: str = Field("", max_length=500)


@router.get("/presets", dependencies=[Depends(known)])
def presets(request: Request, user: UserDep) -> PresetPage:
    """Return all presets that come with us; of saved ones the user's own, and everybody's for who may start trainings."""
    everybodys = may_submit_new(request)
    saved = open_store().presets.newest(None if everybodys else user.name)
    return PresetPage(
        shipped=[
            ShippedPresetAnswer(
                name=each.name,
                title=each.title,
                description=each.description,
                document=each.document,
            )
            for each in shipped_presets()
        ],
        saved=[_answer(each) for each in saved],
    )


@router.get("/presets/saved", dependencies=[Depends(known)])
def saved_preset(
    request: Request,
    user: UserDep,
    name: Annotated[str, Query(max_length=_LONGEST_NAME)],
    version: Annotated[int, Query(ge=1, le=2**31 - 1)],
    by: Annotated[str, Query(max_length=250)],
) -> PresetDocument:
    """Return the document of a saved version, as it was typed."""
    allowed = by == user.name or may_submit_new(request)
    found = open_store().presets.document(by, name, version) if allowed else None
    if found is None:
        raise HTTPException(404, f"there is no preset {name} of version {version} here")
    return PresetDocument(document=found)


@router.post(
    "/presets", status_code=201, dependencies=[Depends(submit_new), Depends(from_own_page)]
)
def save_preset(user: UserDep, asked: SavePresetRequest) -> SavedPresetAnswer:
    """Keep a document as the next version of a preset of the user. The document may be unfinished."""
    if not _NAME.fullmatch(asked.name):
        raise HTTPException(
            422,
            "name: has lower-case letters, digits and hyphens, and neither begins nor ends with one",
        )
    made = open_store().presets.save(
        user.name, asked.name, asked.document, description=asked.description.strip()
    )
    return _answer(made)


def _answer(preset: PresetVersion) -> SavedPresetAnswer:
    return SavedPresetAnswer(
        name=preset.name,
        user=preset.user,
        version=preset.version,
        description=preset.description,
        created=timestamp(preset.created_at) or "",
    )
