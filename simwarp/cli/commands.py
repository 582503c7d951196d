"""The command line: all commands by panel, and the exit codes of their errors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from reference.errors import SimwarpError
from simwarp.cli.bench import bench_app
from simwarp.cli.blas import blas_app
from simwarp.cli.cache import cache_app
from simwarp.cli.coverage import coverage_command
from simwarp.cli.cpd import cpd_command
from simwarp.cli.exclude import exclude_command
from simwarp.cli.exec import exec_app
from simwarp.cli.frag import frag_command
from simwarp.cli.fuzz import fuzz_command
from simwarp.cli.info import info_command
from simwarp.cli.layout import layout_command
from simwarp.cli.net import net_app
from simwarp.cli.ooc import ooc_app
from simwarp.cli.output import STOPPED
from simwarp.cli.probe import probe_command
from simwarp.cli.record import record_command
from simwarp.cli.run import run_app
from simwarp.cli.tensor import tensor_app
from simwarp.cli.trace import trace_app
from simwarp.cli.verify import verify_command
from simwarp.faults import KernelFault

PANELS: dict[str, dict[str, Any]] = {
    "Kernels": {
        "run": run_app,
        "exec": exec_app,
        "verify": verify_command,
        "coverage": coverage_command,
        "trace": trace_app,
        "bench": bench_app,
    },
    "Layouts and formats": {
        "layout": layout_command,
        "frag": frag_command,
        "exclude": exclude_command,
        "tensor": tensor_app,
        "cpd": cpd_command,
    },
    "Networks": {"net": net_app},
    "Several devices": {"blas": blas_app},
    "Larger than the device": {"ooc": ooc_app},
    "This installation": {"info": info_command, "cache": cache_app},
    "Laboratory": {"fuzz": fuzz_command, "probe": probe_command, "record": record_command},
}
"""The commands of each panel of ``simwarp --help``, by the panel's title."""


class Commands(TyperGroup):
    """The commands of ``simwarp``, in the order of `PANELS`; Ctrl-C raises `typer.Abort`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of `PANELS`."""
        return [name for panel in PANELS.values() for name in panel]

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with KeyboardInterrupt as `typer.Abort`."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


app = typer.Typer(
    name="simwarp",
    cls=Commands,
    help="A GPU in NumPy, and the production kernels that it tests.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for title, commands in PANELS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=title)
        else:
            app.command(name, rich_help_panel=title)(command)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; a user's error is printed without a traceback.

    >>> run(["info", "--no-such-option"])
    2
    """
    try:
        result: Any = app(arguments, standalone_mode=False)
    except typer.Exit as stop:
        if stop.exit_code == STOPPED:
            sys.stderr.write("stopped\n")
        return int(stop.exit_code)
    except KernelFault as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    except SimwarpError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("stopped\n")
        return STOPPED
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")):
            describe: Callable[[], str] = getattr(error, "format_message", error.__str__)
            message = describe()
            sys.stderr.write(f"{message}\nsee simwarp --help\n")
            return 2
        raise
    return result if isinstance(result, int) else 0
