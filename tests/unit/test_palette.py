"""One palette: readers who see colours differently can tell its colours apart, in light and in dark."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import swiftfl
from swiftfl import palette
from swiftfl.palette import GROUND, PARTS, SERIES, SHADES, STATES, TEXT, Colour

Vector = npt.NDArray[np.float64]

SEEN_BY = {
    "most people": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Machado, Oliveira, Fernandes (2009), severity 1.0: what is seen of a linear RGB colour."""
APART = 12.0
"""Distance in CIELAB; about 2.3 is just noticeable."""


def linear(colour: str) -> Vector:
    values = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: Vector) -> Vector:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, seen: Vector) -> float:
    return float(np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other))))


def contrast(one: str, other: str) -> float:
    """Of WCAG."""
    low, high = sorted(float(linear(c) @ np.array([0.2126, 0.7152, 0.0722])) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("who", SEEN_BY)
@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("colours", [SERIES, tuple(PARTS.values()), tuple(STATES.values())])
def test_everybody_tells_the_colours_apart(colours: tuple[Colour, ...], mode: int, who: str) -> None:
    for one, other in combinations([colour[mode] for colour in colours], 2):
        assert distance(one, other, SEEN_BY[who]) > APART, (one, other)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_text_is_legible_and_shades_leave_the_ground_step_by_step(mode: int) -> None:
    for ground in (GROUND, palette.CARD):
        assert contrast(TEXT[mode], ground[mode]) > 7
        for softer in (palette.SOFT, palette.LINK):
            assert contrast(softer[mode], ground[mode]) > 4.5
    steps = [contrast(shade[mode], GROUND[mode]) for shade in SHADES]
    assert steps == sorted(steps)
    assert contrast(SERIES[0][mode], GROUND[mode]) > 3


def test_a_light_colour_has_one_dark_partner() -> None:
    """Pictures are drawn in light colours, and a page finds the dark ones by them."""
    every = set(palette._NAMED.values())
    assert len({colour.light for colour in every}) == len(every)
    assert all(re.fullmatch(r"#[0-9a-f]{6}", value) for colour in every for value in colour)


def test_a_picture_on_a_page_follows_the_setting_of_its_reader() -> None:
    svg = f'<svg width="1"><path style="fill: {TEXT.light}; stroke: #123456"/></svg>'
    shown = palette.themed(svg)
    name = f"--{TEXT.light[1:]}"
    assert f"fill: var({name}); stroke: #123456" in shown
    light, dark = shown.split("@media (prefers-color-scheme: dark)")
    assert f"{name}: {TEXT.light};" in light
    assert f"{name}: {TEXT.dark};" in dark


def test_the_variables_of_a_page() -> None:
    light, media, _, chosen = palette.css().strip().split("\n")
    assert f"--waiting: {PARTS['waiting'].light};" in light
    for dark in (media, chosen):
        assert f"--waiting: {PARTS['waiting'].dark};" in dark
        assert f"--series-0: {SERIES[0].dark};" in dark


def test_colours_are_named_in_one_place() -> None:
    source = Path(swiftfl.__file__).parent
    files = [f for f in source.rglob("*") if f.suffix in {".py", ".j2"} or f.parent.name == "templates"]
    files.remove(source / "palette.py")
    named = {
        str(f.relative_to(source)): found
        for f in files
        if (found := re.findall(r"#[0-9a-fA-F]{6}\b|tab10|turbo|YlGnBu", f.read_text()))
    }
    assert named == {}
