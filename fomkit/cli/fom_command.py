"""``fomkit fom``: the figure of merit of a suite."""

from __future__ import annotations

from typing import Annotated

import typer

from fomkit.cli.names import complete_machine, complete_suite
from fomkit.cli.screen import Quiet, progress, standard_output


def fom(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="Suite by name or path, for example lecture.",
            autocompletion=complete_suite,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            help="Machine to rate; default: the only other one given.",
            autocompletion=complete_machine,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Machine to compare with; default: the suite's.", autocompletion=complete_machine),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/fom/1 instead of a table.")] = False,
    quiet: Quiet = False,
) -> None:
    """Rate a target machine over a baseline on a suite of work.

    Examples:

      fomkit fom lecture

      fomkit fom lecture.suite.yaml --baseline a --target titan --json
    """
    from fomkit.errors import FomkitError
    from fomkit.profiles import load_machine, load_model, load_suite
    from fomkit.report.files import to_json
    from fomkit.report.terminal import format_suite
    from fomkit.study import Options, given_machines, run_suite, suite_content

    lines = load_suite(suite)
    old = load_machine(baseline or lines.baseline)
    others = [name for name in given_machines(lines) if name != old.name]
    if target is None and len(others) != 1:
        raise FomkitError(
            suite, f"the target is not clear; the suite gives {others or 'none'}. Add '--target NAME'."
        )
    with progress(f"rating {suite}", quiet=quiet):
        result = run_suite(lines, old, load_machine(target or others[0]), Options(), load_model)
    content = suite_content(result)
    print(to_json(content) if as_json else format_suite(content, standard_output()), end="")
