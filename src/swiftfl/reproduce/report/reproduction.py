"""The report of `swiftfl reproduce`: tables, figures and one page, from what is recorded and nothing else."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from swiftfl.errors import UserError
from swiftfl.report import page
from swiftfl.report.figures import drawn
from swiftfl.report.table import Table
from swiftfl.reproduce.report import convergence
from swiftfl.reproduce.report.configuration import configuration_tables
from swiftfl.reproduce.report.constants import live_table, sensitivity_pictures, sensitivity_table
from swiftfl.reproduce.report.differences import differences
from swiftfl.reproduce.report.findings import findings, overview
from swiftfl.reproduce.report.learning import learning_table
from swiftfl.reproduce.report.loss_curves import loss_pictures
from swiftfl.reproduce.report.networks import histogram_figures, topology_figures
from swiftfl.reproduce.report.recorded import RecordedExperiment, experiments
from swiftfl.reproduce.report.run_times import runs_table
from swiftfl.reproduce.report.time_use import bar_pictures, timeline_pictures
from swiftfl.reproduce.report.times import time_tables

TITLE = "SWIFT, reproduced"
_OPENING = (
    "What this software finds beside what the paper printed. Losses are of models that were trained "
    "here; times beside the paper's are virtual, on simulated hardware that was calibrated on one row of the "
    "paper's tables. Each section says what it leaves out."
)


def write(out: Path) -> Path:
    """Write tables and figures into each experiment's folder, and the page over all of them."""
    found = experiments(out)
    results = out / "convergence" / "results.json"
    if not found and not results.is_file():
        raise UserError(f"{out} holds no experiment: nothing has been reproduced there")
    sections = _sections(found)
    if results.is_file():
        sections.append(_convergence(results))
    glance = overview(found)
    if glance is not None:
        sections.insert(0, page.PageSection("overview", "At a glance", glance.html()))
    file = out / "report.html"
    temporary = file.with_name(f".report.html.{os.getpid()}")
    temporary.write_text(page.page(TITLE, page.paragraph(_OPENING), sections), encoding="utf-8")
    temporary.replace(file)
    return file


def _sections(found: list[RecordedExperiment]) -> list[page.PageSection]:
    """Drawing takes the time, so experiments are drawn side by side."""
    if len(found) < 2:
        return [_section(recorded) for recorded in found]
    workers = min(len(found), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(_section, found))


def _section(recorded: RecordedExperiment) -> page.PageSection:
    """Headlines first, then tables, pictures, and what explains them."""
    figures = recorded.folder / "figures"
    learnt = learning_table(recorded)
    times = time_tables(recorded)
    sensitive, live = sensitivity_table(recorded), live_table(recorded)
    body = [
        *(page.paragraph(sentence, "missing") for sentence in recorded.missing()),
        page.part("Findings", page.bullets(findings(recorded))),
        page.part("Times: paper, here, difference", *_saved(recorded.folder, times)),
        page.gallery(drawn(bar_pictures(recorded), figures)),
        page.part("Measured on this machine", *_saved(recorded.folder, [live])),
        page.part("What was learnt", *_saved(recorded.folder, [learnt, runs_table(recorded)])),
        page.gallery(drawn(loss_pictures(recorded), figures)),
        page.part(
            "Who computes, communicates, waits", page.gallery(drawn(timeline_pictures(recorded), figures))
        ),
        page.part(
            "How much the free constants matter",
            *_saved(recorded.folder, [sensitive]),
            page.gallery(drawn(sensitivity_pictures(recorded), figures)),
        ),
        page.part(
            "Networks and data",
            page.gallery([*topology_figures(recorded, figures), *histogram_figures(recorded, figures)]),
        ),
        page.part("Where this differs from the paper, and why", page.bullets(differences(recorded))),
        _provenance(recorded),
    ]
    return page.PageSection(recorded.name, recorded.title, "\n".join(block for block in body if block))


def _saved(folder: Path, tables: list[Table] | list[Table | None]) -> list[str]:
    """Written as CSV and LaTeX; as HTML for the page."""
    there = [table for table in tables if table is not None]
    for table in there:
        table.save(folder / "tables")
    return [table.html() for table in there]


def _provenance(recorded: RecordedExperiment) -> str:
    about = recorded.about
    facts: dict[str, Any] = {
        key: about[key] for key in ("scale", "engine", "seeds", "hardware") if key in about
    }
    return page.part(
        "Command and configuration",
        page.command(str(about.get("command", ""))),
        page.folded("Versions and settings", page.definitions({**facts, **about.get("versions", {})})),
        page.folded("Configuration", *(table.html() for table in configuration_tables(recorded))),
    )


def _convergence(results: Path) -> page.PageSection:
    """Of the theorem; its tables and figures are its own module's."""
    try:
        found: dict[str, Any] = json.loads(results.read_text())
    except ValueError as error:
        raise UserError(f"cannot read {results}: {error}") from None
    folder = results.parent
    try:
        body = [
            page.part("Findings", page.bullets(convergence.findings(found))),
            *_saved(folder, convergence.tables(found)),
            page.gallery(drawn(convergence.pictures(found), folder / "figures")),
        ]
    except (KeyError, IndexError, TypeError):
        body = [page.paragraph(f"{results.name} is not complete, or of another version.", "missing")]
    return page.PageSection("convergence", "Convergence", "\n".join(body))
