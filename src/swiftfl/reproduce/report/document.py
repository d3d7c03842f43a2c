"""The report of `swiftfl reproduce`: tables, figures and one page, from what is recorded and nothing else."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from swiftfl.engines.threads import cores
from swiftfl.errors import UserError
from swiftfl.experiment.pool import Job, JobEvent, JobFailed, JobFinished, run_jobs
from swiftfl.files import remove_stale, write_atomically
from swiftfl.report import page
from swiftfl.report.figures import Picture, drawn
from swiftfl.report.numbers import Cell
from swiftfl.report.run_page import write_run_page
from swiftfl.report.table import GROUP, Table
from swiftfl.reproduce.report import convergence, laboratory
from swiftfl.reproduce.report.differences import differences
from swiftfl.reproduce.report.figures import (
    bar_pictures,
    histogram_figures,
    loss_pictures,
    overview_pictures,
    sensitivity_pictures,
    timeline_pictures,
    topology_figures,
)
from swiftfl.reproduce.report.findings import findings, overview
from swiftfl.reproduce.report.laboratory_findings import laboratory_findings, laboratory_pictures
from swiftfl.reproduce.report.learning import learning_table
from swiftfl.reproduce.report.measured import MeasuredInquiry
from swiftfl.reproduce.report.recorded import MEASURED, RecordedExperiment, experiments, recorded
from swiftfl.reproduce.report.times import live_table, runs_table, sensitivity_table, time_tables
from swiftfl.views.run import RunView

_log = logging.getLogger(__name__)

TITLE = "SWIFT, reproduced"
_OPENING = (
    "What this software finds beside what the paper printed. Losses are of models that were trained "
    "here; times beside the paper's are virtual, on simulated hardware that was calibrated on three rows of "
    "the paper's tables. Each section says what it leaves out."
)
_SAID_ELSEWHERE = ("seed",)


Progress = Callable[[str, int, int], None]
"""Told what is done, and how many of how many are done now."""


def write(out: Path, workers: int | None = None, progress: Progress | None = None) -> Path:
    """Write tables and figures into each experiment's folder, and the page over all of them.

    Drawing takes most of the time, so sections are made in `workers` processes (default: one per core).
    """
    found = experiments(out)
    measured = [out / name for name in MEASURED if (out / name / "results.json").is_file()]
    folders = [experiment.folder for experiment in found] + measured
    if not folders:
        raise UserError(f"{out} holds no experiment: nothing has been reproduced there")
    remove_stale(out)
    sections = _sections(folders, min(len(folders), workers or cores()), progress or _unseen)
    at_a_glance = _at_a_glance(found, out)
    if at_a_glance:
        sections.insert(0, page.PageSection("overview", "At a glance", at_a_glance))
    file = out / "report.html"
    write_atomically(file, page.page(TITLE, page.paragraph(_OPENING), sections))
    _log.info("wrote %s with %d sections", file, len(sections))
    return file


def _at_a_glance(found: list[RecordedExperiment], out: Path) -> Markup:
    """The product in one picture, and SWIFT against D-SGD in numbers."""
    pictures = page.gallery(drawn(overview_pictures(found), out / "figures"))
    table = overview(found)
    return page.joined([pictures, page.table(table) if table is not None else Markup()])


def _unseen(what: str, done: int, total: int) -> None:
    """Nobody watches."""


def _sections(folders: Sequence[Path], workers: int, progress: Progress) -> list[page.PageSection]:
    """One section per folder, in this order. A section that cannot be made says why."""
    made: dict[str, page.PageSection] = {}
    progress("", 0, len(folders))
    if workers == 1:
        for folder in folders:
            made[folder.name] = _section_or_reason(folder)
            progress(folder.name, len(made), len(folders))
        return list(made.values())

    def note(event: JobEvent) -> None:
        name = event.job.name
        if isinstance(event, JobFinished):
            anchor, heading, body = event.result
            made[name] = page.PageSection(anchor, heading, Markup(body))
        elif isinstance(event, JobFailed):
            made[name] = _reason(name, event.reason)
        progress(name, len(made), len(folders))

    function = f"{__name__}:make_section"
    run_jobs([Job(f.name, function, {"folder": str(f)}) for f in folders], workers, note)
    return [made[folder.name] for folder in folders]


def make_section(report: Callable[[int], None], folder: str) -> tuple[str, str, str]:
    """In a worker process: one section, with its tables and figures written."""
    made = _section_or_reason(Path(folder))
    return made.anchor, made.heading, str(made.body)


def _section_or_reason(folder: Path) -> page.PageSection:
    try:
        return _section(folder)
    except UserError as error:
        return _reason(folder.name, str(error))


def _reason(name: str, reason: str) -> page.PageSection:
    body = page.paragraph(f"This section could not be made: {reason}", "missing")
    return page.PageSection(name, name.capitalize(), body)


def _section(folder: Path) -> page.PageSection:
    if folder.name in MEASURED:
        return _measured_section(folder)
    return _experiment_section(recorded(folder))


def _experiment_section(recorded: RecordedExperiment) -> page.PageSection:
    """Headlines first, then who waits, tables, pictures, and what explains them."""
    folder, figures = recorded.folder, recorded.folder / "figures"
    blocks = [
        *(page.paragraph(sentence, "missing") for sentence in recorded.missing()),
        page.part("Findings", page.bullets(findings(recorded))),
        page.part(
            "Who computes, communicates, waits", page.gallery(drawn(timeline_pictures(recorded), figures))
        ),
        page.part("Times: paper, here, error", *_saved(folder, time_tables(recorded))),
        page.gallery(drawn(bar_pictures(recorded), figures)),
        page.part("Measured on this machine", *_saved(folder, [live_table(recorded)])),
        page.part("What was learnt", *_saved(folder, [learning_table(recorded), runs_table(recorded)])),
        page.gallery(drawn(loss_pictures(recorded), figures)),
        page.part(
            "How much the free constants matter",
            *_saved(folder, [sensitivity_table(recorded)]),
            page.gallery(drawn(sensitivity_pictures(recorded), figures)),
        ),
        page.part(
            "Networks and data",
            page.gallery([*topology_figures(recorded, figures), *histogram_figures(recorded, figures)]),
        ),
        page.part("The runs, to look into", page.links(_run_pages(recorded))),
        page.part("Where this differs from the paper, and why", page.bullets(differences(recorded))),
        _provenance(recorded),
    ]
    return page.PageSection(recorded.name, recorded.title, page.joined(blocks))


def _run_pages(recorded: RecordedExperiment) -> dict[str, str]:
    """For each group that was trained, a page as `swiftfl report` writes it of the first seed's runs; where
    they are, seen from the report."""
    found = {}
    for group, label in recorded.groups.items():
        runs = {m: recorded.of(group, m) for m in recorded.methods}
        views = [RunView(those[0].path, recorded.methods[m]) for m, those in runs.items() if those]
        if views:
            file = recorded.folder / "pages" / f"{group}.html"
            write_run_page(file, views)
            seed = next(those[0].seed for those in runs.values() if those)
            href = "/".join(map(quote, file.relative_to(recorded.folder.parent).parts))
            found[f"{label}, seed {seed}: streams, curves, clients and settings"] = href
    return found


def _saved(folder: Path, tables: Sequence[Table | None]) -> list[Markup]:
    """Written as CSV and LaTeX; as HTML for the page."""
    there = [table for table in tables if table is not None]
    for table in there:
        table.save(folder / "tables")
    return [page.table(table) for table in there]


def _measured_section(folder: Path) -> page.PageSection:
    results = folder / "results.json"
    try:
        found: dict[str, Any] = json.loads(results.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {results}: {error}") from None
    heading = folder.name.capitalize()
    try:
        if folder.name == "convergence":
            findings, tables, pictures = convergence.findings, convergence.tables, convergence.pictures
            blocks = _measured_blocks(folder, findings(found), tables(found), pictures(found))
        else:
            inquiry = MeasuredInquiry(found)
            heading = inquiry.title
            blocks = [
                *_measured_blocks(
                    folder,
                    laboratory_findings(inquiry),
                    laboratory.tables(inquiry),
                    laboratory_pictures(inquiry),
                ),
                page.part("Command", page.command(str(found["command"]))),
            ]
    except (KeyError, IndexError, TypeError):
        blocks = [page.paragraph(f"{results.name} is not complete, or of another version.", "missing")]
    return page.PageSection(folder.name, heading, page.joined(blocks))


def _measured_blocks(
    folder: Path, findings: Sequence[str], tables: Sequence[Table], pictures: Sequence[Picture]
) -> list[Markup]:
    return [
        page.part("Findings", page.bullets(findings)),
        *_saved(folder, tables),
        page.gallery(drawn(pictures, folder / "figures")),
    ]


# --- command and configuration -----------------------------------------------------------------------------


def _provenance(recorded: RecordedExperiment) -> Markup:
    about = recorded.about
    facts: dict[str, Any] = {
        key: about[key] for key in ("scale", "engine", "seeds", "hardware", "fidelity") if key in about
    }
    return page.part(
        "Command and configuration",
        page.command(str(about.get("command", ""))),
        page.folded("Versions and settings", page.definitions({**facts, **about.get("versions", {})})),
        page.folded("Configuration", *map(page.table, configuration_tables(recorded))),
    )


def configuration_tables(recorded: RecordedExperiment) -> list[Table]:
    """The common settings, and those that change from case to case."""
    configs: dict[tuple[str, str], dict[str, str]] = {}
    for run in recorded.runs:
        if run.config and (run.group, run.method) not in configs:
            configs[run.group, run.method] = flat(run.config)
    if not configs:
        return []
    names = sorted({name for config in configs.values() for name in config} - set(_SAID_ELSEWHERE))
    values = {name: [config.get(name, "") for config in configs.values()] for name in names}
    common = [name for name in names if len(set(values[name])) == 1]
    varying = [name for name in names if name not in common]
    same = Table(
        f"{recorded.name}-configuration",
        "Settings of all runs",
        ("setting", "value"),
        [[name, values[name][0]] for name in common],
    )
    rows: list[list[Cell]] = []
    for (group, method), config in configs.items():
        named = (recorded.groups.get(group, group), recorded.methods.get(method, method))
        rows.append([*named, *(config.get(name, "") for name in varying)])
    differing = Table(f"{recorded.name}-cases", "Settings that differ", (GROUP, "method", *varying), rows)
    return [same, differing] if varying else [same]


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, str]:
    """By dotted name, as `swiftfl run` and `with_changes` take them.

    >>> flat({"engine": {"epochs": 8, "costs": {}}, "seed": 0})
    {'engine.epochs': '8', 'engine.costs': '{}', 'seed': '0'}
    """
    named: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            named |= flat(value, f"{before}{name}.")
        else:
            named[f"{before}{name}"] = value if isinstance(value, str) else json.dumps(value)
    return named
