"""The table of saved networks. Only its shape lives here."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from airflow_training.state.models import Base, Json, LongText, Name, Seconds

__all__ = ["NetworkRow"]


class NetworkRow(Base):
    """One version of a network that somebody has saved. Rows are only ever added."""

    __tablename__ = "training_networks"
    name: Mapped[Name] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    user: Mapped[str] = mapped_column(String(250))
    description: Mapped[LongText]
    created_at: Mapped[Seconds]
    digest: Mapped[str] = mapped_column(String(71))
    """`sha256:` and 64 digits."""
    document: Mapped[Json]
    """YAML, as it was given."""
