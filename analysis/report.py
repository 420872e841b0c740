"""From a run folder to everything a reader or a machine wants of it; works on a run that broke off, as far as there is anything.

The raw records of a worker that gave its last word are replaced by verified Parquet; everything else is left as it is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from analysis import csv_files, hlog, junit, markdown, page, sections
from analysis.parquet import convert_all
from analysis.result import analyse
from analysis.run_folder import Run, RunFolderError, open_run
from analysis.summary import Summary, summarise

__all__ = ["RunFolderError", "build"]


def build(run_dir: Path, *, rebuild_parquet: bool = True) -> Summary:
    """Analyse a run folder and write its reports. Raises RunFolderError (a UsageError), and OSError where nothing can be written."""
    run = open_run(Path(run_dir), prepare=_to_parquet if rebuild_parquet else None)
    with ThreadPoolExecutor(1) as beside:  # numpy's loops run outside the interpreter's lock
        chapters = beside.submit(sections.compute, run)
        histograms = beside.submit(hlog.write, run, run.path / "fleet.hlog")
        result = analyse(run, chapters.result)
        summary = summarise(result)
        write_text(run.path / "summary.json", summary.to_json())
        write_text(run.path / "summary.md", markdown.render(result))
        write_bytes(run.path / "junit.xml", junit.render(result))
        csv_files.write(result, run.path)
        histograms.result()  # before plots are drawn: both at once would take the most memory
        write_text(run.path / "report.html", page.render(result))
    return summary


def _to_parquet(run: Run) -> None:
    """Convert raw records; a raw file goes only when its worker is done with it and the Parquet file has been compared with it."""
    final = {worker.name for worker in run.manifest.workers if worker.state in ("drained", "stopped")}
    converted = convert_all(run.files)
    for raw, file in zip(run.files, converted, strict=True):
        if raw is not file and run.manifest.state == "ended" and raw.worker in final:
            raw.path.unlink()
    run.replace_files(converted)


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that no reader sees half of it."""
    scratch = path.with_name(path.name + ".part")
    scratch.write_bytes(data)
    scratch.replace(path)
