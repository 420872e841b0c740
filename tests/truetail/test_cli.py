"""The door: commands by name, help without their modules, and every expected error as a line with its exit code."""

from __future__ import annotations

import errno
import subprocess
import sys
import types

import pytest

from truetail import cli
from truetail.errors import RunFailed, TargetNotReady, UsageError


def command(monkeypatch, run, name: str = "check") -> None:
    """Put a command in place that does ``run``."""
    module = types.ModuleType("truetail.commands.fake", "Does something.")
    module.add_arguments = lambda parser: parser.add_argument("--flag", action="store_true")
    module.run = run
    monkeypatch.setitem(sys.modules, "truetail.commands.fake", module)
    monkeypatch.setattr(cli, "COMMANDS", {name: cli.Command("truetail.commands.fake", "does something")})


def raising(error: BaseException):
    def run(args):
        raise error

    return run


def test_help_lists_every_command_in_one_line_each(capsys):
    """All commands of the design, each with what it does, and the exit codes."""
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    promised = ("run", "ui", "master", "worker", "report", "compare", "sweep", "plan", "trace", "collect", "target", "check")
    assert tuple(cli.COMMANDS) == promised
    for name in promised:
        assert sum(line.startswith(f"  {name} ") for line in out.splitlines()) == 1
    assert "130 interrupted" in out
    assert max(map(len, out.splitlines())) <= 110


def test_help_and_version_import_nothing_heavy():
    """The door opens without locust, gevent, numpy or pydantic."""
    code = (
        "import sys; from truetail.cli import main; assert main(['--help']) == main(['--version']) == 0; "
        "print(sorted({'locust', 'gevent', 'numpy', 'pydantic', 'matplotlib', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_is_the_command():
    """``python -m truetail`` does the same, and its exit code reaches the shell."""
    done = subprocess.run([sys.executable, "-m", "truetail", "chekc"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("truetail: error: unknown command 'chekc'; allowed: run, ")
    assert done.stderr.endswith("did you mean 'check'?\n")


def test_nothing_asked_is_a_usage_error(capsys):
    """No command: the overview on standard error, exit code 2."""
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: truetail COMMAND" in captured.err


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_summaries_are_one_short_line(name):
    """They are written in one place, and fit a terminal."""
    summary = cli.COMMANDS[name].summary
    assert 10 < len(summary) < 95
    assert "\n" not in summary


@pytest.mark.parametrize(
    ("error", "code", "err"),
    [
        (
            UsageError("a.yaml:1:1: wrong", "a.yaml:2:1: wrong too"),
            2,
            "truetail: error: a.yaml:1:1: wrong\ntruetail: error: a.yaml:2:1: wrong too\n",
        ),
        (RunFailed("no room"), 3, "truetail: error: no room\n"),
        (TargetNotReady("not ready after 30s"), 4, "truetail: error: not ready after 30s\n"),
        (KeyboardInterrupt(), 130, "truetail: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 3, "truetail: error: runs/x: No space left on device\n"),
        (PermissionError(errno.EACCES, "Permission denied", "runs"), 3, "truetail: error: runs: Permission denied\n"),
        (UsageError("found \x1b[2J\x07"), 2, "truetail: error: found �[2J�\n"),
    ],
)
def test_expected_errors_are_lines_with_an_exit_code(monkeypatch, capsys, error, code, err):
    """Each expected error: its own exit code, clear lines, no traceback, no control characters."""
    command(monkeypatch, raising(error))
    assert cli.main(["check"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", err)


def test_the_command_decides_the_exit_code(monkeypatch):
    """What ``run`` returns is the exit code."""
    command(monkeypatch, lambda args: 1 if args.flag else 0)
    assert cli.main(["check"]) == 0
    assert cli.main(["check", "--flag"]) == 1


def test_wrong_options_are_usage_errors(monkeypatch, capsys):
    """argparse's own complaint, with exit code 2."""
    command(monkeypatch, lambda args: 0)
    with pytest.raises(SystemExit) as error:
        cli.main(["check", "--nonsense"])
    assert error.value.code == 2
    assert "usage: truetail check" in capsys.readouterr().err


def test_a_command_that_is_missing_says_so(monkeypatch, capsys):
    """A command without its module, and one whose module needs another: two different clear lines."""
    monkeypatch.setattr(cli, "COMMANDS", {"check": cli.Command("truetail.commands.nowhere", "")})
    assert cli.main(["check"]) == 2
    assert "'check' is not part of this installation (truetail.commands.nowhere is missing)" in capsys.readouterr().err

    def absent(name):
        raise ModuleNotFoundError(f"No module named {name}", name="pyarrow")

    monkeypatch.setattr(cli.importlib, "import_module", absent)
    assert cli.main(["check"]) == 2
    assert "'check' needs the Python module 'pyarrow', which is not installed" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error():
    """``truetail --help | true``: no traceback."""
    process = subprocess.Popen([sys.executable, "-m", "truetail", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) in (0, cli.BROKEN_PIPE)
    assert b"Traceback" not in err


@pytest.mark.parametrize(("name", "program"), [("target", "python -m target"), ("collect", "collector")])
def test_target_and_collect_become_the_other_program(name, program):
    """All arguments are passed on, ``--help`` included; the exit code is the other's."""
    done = subprocess.run([sys.executable, "-m", "truetail", name, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: {program}")
    wrong = subprocess.run([sys.executable, "-m", "truetail", name, "--nonsense"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("usage: ")
