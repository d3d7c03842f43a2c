"""What all sections of a configuration have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Only the settings that it names, and they cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
