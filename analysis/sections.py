"""Further chapters of the report: how sure, certificate, sanity laws, diagnosis, GPU. One that fails is said to have failed.

To add one, append (title, ``module:function``) here. The function takes the Run and returns a Section, or a mapping with any of
``findings`` (lines), ``tables`` (mappings: title, header, rows, note), ``plots`` (mappings: title, svg, caption) and ``data`` (JSON); None
when it has nothing to say. It is imported only when the report is built, so that one broken chapter breaks nothing else.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.run_folder import Run
from analysis.text import plain

log = logging.getLogger("truetail.analysis")
LONG_CELL = 24
"""Characters of a cell beyond which it is a sentence and not a figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: cells are text or numbers, escaped where they are shown."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    @property
    def text_columns(self) -> set[int]:
        """Columns that hold sentences: their cells wrap and stand at the left, as their headings do."""
        return {at for row in self.rows for at, cell in enumerate(row) if isinstance(cell, str) and len(cell) > LONG_CELL}


@dataclass(frozen=True, slots=True)
class Plot:
    """An inline SVG made by analysis.plots (trusted markup) with its caption."""

    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One chapter: findings in words first, then tables and plots. ``data`` goes into summary.json as it is."""

    findings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section with its title, or why it could not be computed."""

    title: str
    section: Section
    failure: str = ""


SECTIONS: list[tuple[str, str]] = [
    ("How sure", "analysis.section_how_sure:section"),
    ("Arrivals certified", "analysis.section_arrivals:section"),
    ("Sanity laws", "analysis.section_laws:section"),
    ("Diagnosis", "analysis.section_diagnosis:section"),
    ("Slowest requests", "analysis.section_slowest:section"),
    ("Theory beside measurement", "analysis.section_theory:section"),
    ("GPU, server and host", "analysis.telemetry_section:section"),
]
"""(title, ``module:function``)."""


def compute(run: Run, sections: Sequence[tuple[str, str]] | None = None) -> list[Chapter]:
    """Every further chapter, in order."""
    chapters = [_chapter(run, title, where) for title, where in (SECTIONS if sections is None else sections)]
    return [chapter for chapter in chapters if chapter is not None]


def _chapter(run: Run, title: str, where: str) -> Chapter | None:
    module, _, function = where.partition(":")
    try:
        section = _section(getattr(importlib.import_module(module), function)(run))
    except Exception as error:  # a chapter of any kind: the verdict and the others must still be told
        log.warning("section %s could not be computed", title, exc_info=True)
        return Chapter(title, Section(), plain(f"{type(error).__name__}: {error}"))
    return None if section is None else Chapter(title, section)


def _section(found: Section | Mapping[str, Any] | None) -> Section | None:
    if found is None or isinstance(found, Section):
        return found
    return Section(
        [str(line) for line in found.get("findings", ())],
        [Table(**table) for table in found.get("tables", ())],
        [Plot(**plot) for plot in found.get("plots", ())],
        dict(found.get("data", {})),
    )
