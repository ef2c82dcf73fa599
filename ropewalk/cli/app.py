"""The application: commands, version, and what becomes of an error.

torch, rich and everything else that is slow to load are imported inside commands, so that help and
version come at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ropewalk._version import __version__
from ropewalk.cli.bench import bench
from ropewalk.cli.build_kernel import build_kernel
from ropewalk.cli.check import check
from ropewalk.cli.diff import diff
from ropewalk.cli.emit import emit
from ropewalk.cli.encodings import encodings
from ropewalk.cli.explain import explain
from ropewalk.cli.extend import extend
from ropewalk.cli.output import UNUSABLE, complain, make_streams_safe
from ropewalk.cli.show import show
from ropewalk.cli.walk import walk

app = typer.Typer(
    name="ropewalk",
    help="Positional encodings for attention: exact, fast, checked.",
    epilog="Example: ropewalk walk",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from ropewalk.kernels import active

        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = "not installed"
        print(f"ropewalk {__version__}, torch {torch}, kernel: {active()}")
        raise typer.Exit()


@app.callback()
def _main(
    context: typer.Context,
    _show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the versions and the kernel."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("walk", epilog='Example: ropewalk walk "The dog chased another dog" --out walk.html')(
    walk
)
app.command("encodings", epilog="Example: ropewalk encodings --json")(encodings)
app.command("show", epilog="Example: ropewalk show rope --set base=500000")(show)
app.command("build-kernel", epilog="Example: ropewalk build-kernel")(build_kernel)
app.command("explain", epilog="Example: ropewalk explain model/config.json")(explain)
app.command("diff", epilog="Example: ropewalk diff model/config.json model.gguf")(diff)
app.command("emit", epilog="Example: ropewalk emit model/config.json --for vllm")(emit)
app.command("extend", epilog="Example: ropewalk extend model/config.json --to 131072")(extend)
app.add_typer(bench, name="bench")
app.command("check", epilog="Example: ropewalk check rope --set phases=float32")(check)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status instead of leaving the process.

    0 fine; 1 the answer is no; 2 the input could not be used, with one line on stderr.
    """
    make_streams_safe()
    try:
        status = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except typer.Exit as leave:
        return leave.exit_code
    except typer.Abort:
        complain("stopped")
        return 130
    except KeyboardInterrupt:
        complain("stopped")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, TypeError, OSError, ImportError) as error:
        complain(_words(error))
        return UNUSABLE
    except Exception as error:
        if not hasattr(error, "format_message"):
            return _unexpected(error)
        complain(_usage(error))
        return UNUSABLE


def _unexpected(error: Exception) -> int:
    """A line, not a traceback, for what nobody foresaw; ``ROPEWALK_TRACEBACK=1`` shows it all."""
    if os.environ.get("ROPEWALK_TRACEBACK"):
        raise error
    complain(f"{type(error).__name__}: {error} (ROPEWALK_TRACEBACK=1 shows where)")
    return UNUSABLE


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'standard output'}: {error.strerror}"
    return str(error) or type(error).__name__


def _usage(error: Exception) -> str:
    """A usage error of the parser in one line, with where to read on."""
    message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "ropewalk"
    return f"{message} Try '{command} --help'."


def run() -> None:
    """The installed ``ropewalk`` command."""
    sys.exit(main())
