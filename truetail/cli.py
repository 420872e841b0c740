"""The door: ``truetail COMMAND ...``. Each command is a module that is imported only when it is asked for."""

from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from truetail.errors import ExitCode, UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives, and what it does in one line. ``passes_on``: its arguments belong to another program."""

    module: str
    summary: str
    passes_on: bool = False


COMMANDS: Mapping[str, Command] = {
    "run": Command("truetail.commands.run", "run a scenario here: target, collector, master and workers, report and verdict"),
    "ui": Command("truetail.commands.ui", "choose, edit, start and watch runs in the browser"),
    "master": Command("truetail.commands.master", "be the master of a run over several machines"),
    "worker": Command("truetail.commands.worker", "be a worker of a run over several machines"),
    "report": Command("truetail.commands.report", "build (again) the report of a run's folder, also of one that broke off"),
    "compare": Command("truetail.commands.compare", "say whether two groups of runs have the same tail, with an honest test"),
    "sweep": Command("truetail.commands.sweep", "latency against load, and the largest rate that meets the SLO"),
    "plan": Command("truetail.commands.plan", "capacity from theory: replicas for an SLO, batch settings, fan-out"),
    "trace": Command("truetail.commands.trace", "inspect, convert or fit recorded traffic"),
    "collect": Command("truetail.commands.collect", "record GPU and server metrics alone", passes_on=True),
    "target": Command("truetail.commands.target", "start the reference service alone", passes_on=True),
    "check": Command("truetail.commands.check", "validate a scenario and show its schedule; send nothing"),
}

CODES = "exit codes: 0 PASS, 1 FAIL, 2 usage or scenario error, 3 INVALID run, 4 target never ready, 130 interrupted"
BROKEN_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that ``arguments`` (the process's own when None) name; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("truetail: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except UsageError as error:
        _complain(error.faults)
        return error.exit_code
    except BrokenPipeError:
        # The reader went away (`| head`): nothing more can be said there, nor need it be.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        # A full disk, a folder that may not be written: the run proves nothing, and a traceback would not help.
        where = f"{error.filename}: " if error.filename else ""
        _complain([f"{where}{error.strerror or error}"])
        return ExitCode.INVALID
    return code


def overview() -> str:
    """What ``truetail --help`` says."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: truetail COMMAND ...    (truetail COMMAND --help tells more)",
            "",
            "Open-loop, distributed load tests on Locust, ending in a verdict.",
            "",
            *lines,
            "",
            "start with:  truetail check scenarios/smoke.yaml",
            "             truetail run scenarios/smoke.yaml",
            "",
            CODES,
        ]
    )


def version() -> str:
    """The installed version."""
    return importlib.metadata.version("truetail")


def _dispatch(given: list[str]) -> int:
    if not given:
        print(overview(), file=sys.stderr)
        return ExitCode.USAGE
    name, *rest = given
    if name in ("-h", "--help", "help"):
        print(overview())
        return ExitCode.PASS
    if name in ("-V", "--version"):
        print(f"truetail {version()}")
        return ExitCode.PASS
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown command {name!r}; allowed: {', '.join(COMMANDS)}{hint}")
    module = _load(name, command)
    if command.passes_on:
        return int(module.run(argparse.Namespace(arguments=rest)))
    parser = argparse.ArgumentParser(prog=f"truetail {name}", description=module.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(rest)))


def _load(name: str, command: Command) -> ModuleType:
    try:
        return importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if error.name == command.module:
            raise UsageError(f"command {name!r} is not part of this installation ({command.module} is missing)") from None
        raise UsageError(f"command {name!r} needs the Python module {error.name!r}, which is not installed") from None


def _complain(faults: Sequence[str]) -> None:
    """Faults on stderr, a line each, without control characters: they may quote a file that is not ours."""
    for fault in faults:
        for line in fault.splitlines() or [""]:
            print("truetail: error: " + "".join(char if char.isprintable() else "�" for char in line), file=sys.stderr)
