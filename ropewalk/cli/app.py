"""The application: commands and version.

torch, rich and everything else that is slow to load are imported inside commands, so that help and
version come at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ropewalk._version import __version__
from ropewalk.cli.audit import audit
from ropewalk.cli.bench import bench
from ropewalk.cli.build_kernel import build_kernel
from ropewalk.cli.check import check
from ropewalk.cli.convert import convert
from ropewalk.cli.diff import diff
from ropewalk.cli.emit import emit
from ropewalk.cli.encodings import encodings
from ropewalk.cli.explain import explain
from ropewalk.cli.extend import extend
from ropewalk.cli.named import plugin_warnings_in_a_line
from ropewalk.cli.output import print_json
from ropewalk.cli.precision import precision
from ropewalk.cli.race import INTERRUPTED, race
from ropewalk.cli.report import report
from ropewalk.cli.show import show
from ropewalk.cli.usage import usage
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


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    from ropewalk.kernels import active

    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "not installed"
    return {"ropewalk": __version__, "torch": torch, "kernel": active()}


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions and the kernel.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --version: one JSON document on stdout.")
    ] = False,
) -> None:
    if as_json and not version:
        command = context.invoked_subcommand or "encodings"
        raise ValueError(f"--json goes after a command, as in 'ropewalk {command} --json'")
    if version:
        found = _versions()
        if as_json:
            print_json(found)
        else:
            print("ropewalk {ropewalk}, torch {torch}, kernel: {kernel}".format(**found))
        raise typer.Exit()
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
app.command(
    "race", epilog="Example: ropewalk race --encodings rope,alibi --seeds 5 --out race.html"
)(race)
app.command("report", epilog="Example: ropewalk report race.jsonl --out race.html")(report)
app.command("audit", epilog="Example: ropewalk audit path/to/model --json")(audit)
app.command("usage", epilog="Example: ropewalk usage smollm2 --html usage.html")(usage)
app.command("convert", epilog="Example: ropewalk convert model model-interleaved --to interleaved")(
    convert
)
app.command("precision", epilog="Example: ropewalk precision smollm2 --html precision.html")(
    precision
)
app.add_typer(bench, name="bench")
app.command("check", epilog="Example: ropewalk check rope --set phases=float32")(check)


def parsed(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; returns its exit status."""
    try:
        with plugin_warnings_in_a_line():
            status = app(args=list(arguments), standalone_mode=False)
    except typer.Exit as leave:
        return leave.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    if status == INTERRUPTED and status is not INTERRUPTED:
        raise KeyboardInterrupt  # typer turned one into a silent exit
    return int(status) if isinstance(status, int) else 0
