"""Where every call begins: which way it is run, and what becomes of an error.

Parsing with typer takes longer than explaining a config, as it loads pydantic. The plain form,
``explain CONFIG`` with or without ``--json``, needs no parser; every other call goes through typer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from ropewalk.cli.output import UNUSABLE, complain, make_streams_safe


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status instead of leaving the process.

    0 fine; 1 the answer is no; 2 the input could not be used, with one line on stderr.
    """
    make_streams_safe()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = _command(given)()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        complain("stopped")
        return 130
    except SystemExit as error:  # a file of one's own, or a library: commands return a status
        if isinstance(error.__context__, BrokenPipeError):  # the parser leaves so, and rich
            return _nobody_reads()
        complain(f"something that was loaded left the program: SystemExit {error.code!r}")
        return UNUSABLE
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        if os.environ.get("ROPEWALK_TRACEBACK"):
            raise
        complain(_words(error))
        return UNUSABLE


def _nobody_reads() -> int:
    """The status of a program whose reader is gone, as ``| head`` goes; Python's own flush at the
    end is kept from failing on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _command(given: list[str]) -> Callable[[], int]:
    """What a call asks for."""
    config = plain_explain(given)
    if config is not None:
        from ropewalk.cli.explained import answer

        return lambda: answer(config, None, None, "--json" in given)
    from ropewalk.cli.app import parsed

    return lambda: parsed(given)


def plain_explain(given: list[str]) -> str | None:
    """The CONFIG of a call of the plain form; None for any other."""
    if given[:1] != ["explain"]:
        return None
    rest = [word for word in given[1:] if word != "--json"]
    if len(rest) != 1 or (rest[0].startswith("-") and rest[0] != "-"):
        return None
    return rest[0]


def _words(error: Exception) -> str:
    """An error in one line, not a traceback; ``ROPEWALK_TRACEBACK=1`` shows that of any."""
    if hasattr(error, "format_message"):
        return _usage(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'standard output'}: {error.strerror}"
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return str(error) or type(error).__name__
    return f"{type(error).__name__}: {error} (ROPEWALK_TRACEBACK=1 shows where)"


def _usage(error: Exception) -> str:
    """A usage error of the parser in one line, with where to read on."""
    message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "ropewalk"
    return f"{message} Try '{command} --help'."


def run() -> None:
    """The installed ``ropewalk`` command."""
    sys.exit(main())
