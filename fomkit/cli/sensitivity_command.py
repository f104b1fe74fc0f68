"""``fomkit sensitivity``: what a result hangs on, and what to measure to know it better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fomkit.cli.screen import Quiet, progress, standard_output
from fomkit.cli.subjects import Asked, asked_of_a_subject
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.whatif.sensitivity import Sensitivity

Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write as well: a tornado as .html, .png or .svg; .csv the parameters; .json all. Replaces the file.",
    ),
]


def _check(path: Path | None) -> None:
    from fomkit.report.plots.chart_file import ENDINGS, check_drawable

    if path is None or path.suffix in (".json", ".csv"):
        return
    if path.suffix not in ENDINGS:
        known = ", ".join((".json", ".csv", *ENDINGS))
        raise FomkitError(str(path), f"has an ending that sensitivity cannot write. Use one of {known}.")
    check_drawable(str(path))


def _write(found: Sensitivity, path: Path) -> None:
    from fomkit.api.views import tornado_of
    from fomkit.profiles import write_whole
    from fomkit.report.files import to_csv, to_json
    from fomkit.report.plots.chart_file import chart_file

    content = found.content
    if path.suffix == ".json":
        write_whole(path, to_json(content))
    elif path.suffix == ".csv":
        write_whole(path, to_csv(content["parameters"]))
    else:
        write_whole(path, chart_file(tornado_of(found), path.suffix))


@asked_of_a_subject
def sensitivity(
    subject: Asked,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print fomkit/sensitivity/1 instead of tables.")] = False,
    output: Output = None,
    quiet: Quiet = False,
) -> str:
    """Tell what units/day or a FOM hang on: each parameter's elasticity and swing, and what to measure.

    An elasticity is taken over 1 % of a parameter and held against half of it; a star marks a kink. The swing is
    between the ends of a parameter's own interval, else 10 % either way. Exit code 1 where the device's memory
    does not hold the step. docs/whatif.md says more.

    Examples:

      fomkit sensitivity resnet50 --target v100 -o tornado.html

      fomkit sensitivity --suite candle --target v100

      fomkit sensitivity p1b3 -t a100-sxm --nodes 4 --link system,5us,25GB/s,each
    """
    from fomkit.report.files import to_json
    from fomkit.report.sensitivity import format_sensitivity
    from fomkit.whatif.sensitivity import sensitivity as find

    _check(output)
    with progress("varying parameters", quiet=quiet):
        found = find(subject())
    if output is not None:
        _write(found, output)
    content = found.content
    print(to_json(content) if as_json else format_sensitivity(content, standard_output()), end="")
    return str(content["does_not_fit"])
