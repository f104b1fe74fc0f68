"""Options that several verbs take, in one wording: what is learnt at one verb holds at the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from fomkit.cli.names import complete_machine
from fomkit.cli.screen import complain
from fomkit.dtypes import Precision
from fomkit.errors import FomkitError

Target = Annotated[
    str,
    typer.Option("--target", "-t", help="Machine profile by name or path.", autocompletion=complete_machine),
]
Batch = Annotated[int | None, typer.Option(min=1, help="Samples in one step; default: the profile's.")]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=N", help="Another size that dimensions use, for example seq=512."),
]
Precisions = Annotated[
    Precision | None,
    typer.Option(help="Number formats of the step; default: what the framework would do on the machine."),
]
Scopes = Annotated[
    Literal["device", "node", "system"] | None,
    typer.Option(help="What the rates count; default: the narrowest that all machines state."),
]
Interval = Annotated[float, typer.Option(min=0.01, max=0.999, help="Level of the intervals.")]
Uncovered = Annotated[
    bool, typer.Option("--allow-uncovered", help="Leave work without a time out; times are then lower bounds.")
]
Oversize = Annotated[
    bool,
    typer.Option(
        "--allow-oversize",
        help="End with exit code 0 though the device's memory does not hold a step; it is marked.",
    ),
]
Only = Annotated[
    str | None,
    typer.Option(
        "--for", metavar="TARGET", help="Leave every other machine's name and figures out of the workbook."
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write .json or .csv as well; replaces the file.")
]
ToAccuracy = Annotated[
    Path | None,
    typer.Option("--to-accuracy", metavar="CSV", help="Epochs to a target by batch, as somebody measured them."),
]
Price = Annotated[
    str | None,
    typer.Option(
        metavar="'RATE per PART, DATE[, SOURCE]'",
        help="For example '4.56 USD/h per node, 2018-04-01'; default: that of the machine's profile.",
    ),
]
Carbon = Annotated[
    str | None,
    typer.Option(
        metavar="'INTENSITY, SOURCE'", help="Carbon of the grid's energy: '0.38 kg/kWh, grid operator 2024'."
    ),
]
ToWall = Annotated[
    str | None,
    typer.Option(
        "--to-wall", metavar="'FACTOR, SOURCE'", help="Energy at the wall over that of a chip's or node's figures."
    ),
]
Pue = Annotated[
    str | None,
    typer.Option(metavar="'FACTOR, SOURCE'", help="Energy of the building over that of its machines."),
]


def end_if_oversize(unfit: Sequence[str], *, allowed: bool) -> None:
    """End with exit code 1, after the answer, where it has steps that no device holds.

    Raises
    ------
    typer.Exit
    """
    found = list(dict.fromkeys(one.removesuffix(" (fomkit memory)") for one in unfit if one))
    if not found or allowed:
        return
    complain(
        f"{'; '.join(found)}. Nobody can have these figures: give a smaller batch, or pass --allow-oversize to "
        "take them as they are."
    )
    raise typer.Exit(1)


def check_output(path: Path | None, verb: str) -> None:
    """Raise when a file to write has another ending than .json or .csv.

    Raises
    ------
    FomkitError
        With the endings that it can write.
    """
    if path is not None and path.suffix not in (".json", ".csv"):
        raise FomkitError(str(path), f"has an ending that {verb} cannot write. Use .json or .csv.")


def check_workbook(path: Path | None, only: str | None, others: tuple[str, ...] = ()) -> None:
    """Raise when a file to write has an ending that the verb cannot write, or ``--for`` is about no workbook.

    Raises
    ------
    FomkitError
        With the endings that it can write.
    """
    endings = (*others, ".xlsx")
    if path is not None and path.suffix not in endings:
        raise FomkitError(str(path), f"has an ending that cannot be written here. Use {' or '.join(endings)}.")
    if only is not None and (path is None or path.suffix != ".xlsx"):
        raise FomkitError(f"--for {only}", "is about a workbook. Add, for example, '-o vendor.xlsx'.")
