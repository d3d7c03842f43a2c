"""What all sections of a configuration have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError

from swiftfl.settings import is_truth_for_number

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Only the settings that it names, and they cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_for_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Not `seed: true`."""
        if is_truth_for_number(cls.model_fields[str(info.field_name)].annotation, value):
            raise PydanticKnownError("float_type")
        return value
