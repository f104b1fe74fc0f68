"""Options that several verbs share, shell completion of profile names, and the progress display."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from fomkit.core.errors import FomkitError
from fomkit.core.interval import LEAST_LEVEL, MOST_LEVEL
from fomkit.core.machine import Scope
from fomkit.core.units import Precision
from fomkit.output.screen import PLAIN, Screen

if TYPE_CHECKING:
    from rich.progress import Progress

_SETTING = re.compile(r"([A-Za-z_]\w*)=(0*[1-9]\d{0,14})")


def in_digits(text: str) -> str:
    """Return a whole number in another form, such as 1,000 or 1e3, in digits; other text unchanged."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+|\d(\.\d+)?[eE]\+?\d\d?", text) is None:
        return text
    number = float(text.replace(",", ""))
    return f"{number:.0f}" if number.is_integer() and number < 1e16 else text


def parse_sizes(settings: Sequence[str]) -> dict[str, int]:
    """Parse settings such as ``seq=512``.

    Raises FomkitError when a setting is not a name and a whole number, or a name is set twice.

    Examples
    --------
    >>> parse_sizes(["seq=512", "batch=8"])
    {'seq': 512, 'batch': 8}
    """
    sizes: dict[str, int] = {}
    for setting in settings:
        name, sign, number = setting.partition("=")
        match = _SETTING.fullmatch(f"{name}{sign}{in_digits(number)}")
        if match is None:
            raise FomkitError(
                f"--set {setting}",
                "is not a name and a whole number of 1 or more, at most 1e+15. Write, for example, --set seq=512.",
            )
        if match[1] in sizes:
            raise FomkitError(f"--set {setting}", f"{match[1]} is given twice. Give it once.")
        sizes[match[1]] = int(match[2])
    return sizes


def completer(*sorts: str) -> Callable[[str], list[str]]:
    """Return a function that completes names of profiles of some sorts: model, machine, suite, campaign."""

    def complete(incomplete: str) -> list[str]:
        from fomkit.profiles.locate import profile_names

        found = {"machine": profile_names("machine_profiles")} if "machine" in sorts else {}
        for name in profile_names("model_profiles") if sorts != ("machine",) else ():
            stem, _, sort = name.rpartition(".")
            is_other = sort in ("suite", "campaign")
            found.setdefault(sort if is_other else "model", []).append(stem if is_other else name)
        return [name for sort in sorts for name in found.get(sort, ()) if name.startswith(incomplete)]

    return complete


complete_machine, complete_model, complete_suite, complete_campaign = map(
    completer, ("machine", "model", "suite", "campaign")
)


def option(text: str, *names: str, **more: Any) -> Any:
    """Return a typer option with a help text, flags where they differ from the parameter's name, and more."""
    return typer.Option(*names, help=text, **more)


DELAY_S = 1.0
"""Time after which progress is shown on a terminal [s]."""
SPARSE_S, MOST_SPARSE_S = 20.0, 120.0
"""Time after which a line of progress is printed into a file or a pipe; each wait is twice the one before, up to
the second time [s]."""

Quiet = Annotated[bool, option("Show no progress.", "--quiet", "-q")]
Advance = Callable[..., None]
Force = Annotated[bool, option("Replace files that exist already.", "--force")]
Reporter = Callable[[str], None]


def _coloured(stream: TextIO) -> bool:
    # The older console of Windows prints the codes of colours.
    knows_colours = os.name != "nt" or "WT_SESSION" in os.environ
    return knows_colours and stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def standard_output() -> Screen:
    """Return the screen of standard output: a terminal's width and colours, or COLUMNS for a pipe or a file."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return PLAIN
    return Screen(max(shutil.get_terminal_size().columns, 60), _coloured(sys.stdout))


def _for_standard_error(text: str) -> str:
    """Wrap a text where standard error is a terminal, without breaking words."""
    if not sys.stderr.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 60)
    whole = partial(fill, width=width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(whole, text.splitlines()))


def print_aside(text: str) -> None:
    """Print a remark beside the answer, on standard error."""
    print(_for_standard_error(text), file=sys.stderr)


def print_error(message: str) -> None:
    """Print an error message on standard error."""
    shown = _for_standard_error(f"fomkit: {message}")
    if _coloured(sys.stderr):
        shown = typer.style("fomkit:", fg="red", bold=True) + shown.removeprefix("fomkit:")
    print(shown, file=sys.stderr)


def _progress_line() -> Progress:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def progress_text(what: str, done: int, total: int | None, seconds: float) -> str:
    """Format the progress of work and the time left, where it is known; ``seconds``: since the start.

    >>> progress_text("estimating", 2, 8, 3.0), progress_text("tracing", 0, None, 3.0)
    ('estimating, 2 of 8, about 9 s left', 'tracing')
    """
    if not total:
        return what
    left = f", about {seconds * (total - done) / done:.0f} s left" if done else ""
    return f"{what}, {done} of {total}{left}"


def _print_seldom(text: Callable[[], str], ended: threading.Event) -> None:
    """Print lines of progress for a log, seldom, until the work ends."""
    began, wait_s = time.monotonic(), SPARSE_S
    with suppress(OSError, ValueError):  # nobody reads it any more
        while not ended.wait(wait_s):
            print(f"fomkit: {text()}, {time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)
            wait_s = min(2 * wait_s, MOST_SPARSE_S)


def _update_line(text: Callable[[], str], ended: threading.Event) -> None:
    """Show a line of progress on a terminal if work takes longer than `DELAY_S`; it disappears at the end."""
    if ended.wait(DELAY_S):
        return
    with _progress_line() as line:
        task = line.add_task(text(), total=None)
        while not ended.wait(0.1):
            line.update(task, description=text())


@contextmanager
def _shown(text: Callable[[], str], *, quiet: bool) -> Iterator[None]:
    """Show the current text of progress while work runs: in a line of a terminal, or in lines of a log."""
    if quiet:
        yield
        return
    show, ended = _update_line if sys.stderr.isatty() else _print_seldom, threading.Event()
    # A separate thread, so that the time also advances during one long call of a library.
    shown = threading.Thread(target=show, args=(text, ended), daemon=True)
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()


@contextmanager
def status_line(what: str, *, quiet: bool = False) -> Iterator[Reporter]:
    """Show the current activity: ``what``, then the text with which the returned function was last called."""
    now = deque([what], maxlen=1)
    with _shown(lambda: now[-1], quiet=quiet):
        yield now.append


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Advance]:
    """Show how many parts of the work are done.

    `what`: the work, for example ``"profiling model.py"``; `total`: number of its parts: call the returned
    function after each, or with a number to set the total; without a total only the elapsed time is shown;
    `quiet`: show nothing.
    """
    done, began = 0, time.monotonic()

    def advance(parts: int | None = None) -> None:
        nonlocal done, total
        done, total = (done + 1, total) if parts is None else (0, parts)

    with _shown(lambda: progress_text(what, done, total, time.monotonic() - began), quiet=quiet):
        yield advance


Oversize = Annotated[bool, option(
    "Exit with 0 even if a step does not fit the device's memory; it is marked.", "--allow-oversize"
)]  # fmt: skip
Only = Annotated[
    str | None,
    option("Omit names and figures of all other machines from the workbook.", "--for", metavar="TARGET"),
]
_TARGET = {"autocompletion": complete_machine}
SHARED: Mapping[str, Any] = {
    "machine": Annotated[str, option("Machine profile by name or path.", "--target", "-t", **_TARGET)],
    "machines": Annotated[list[str], option("Machine profile by name or path; may be repeated.", "--target", "-t",
                                            **_TARGET)],
    "batch": Annotated[int | None, option("Samples in one step; default: the profile's.", min=1)],
    "sizes": Annotated[list[str] | None, option("Value of a named size of the model, such as seq=512.", "--set",
                                                metavar="NAME=N")],
    "precision": Annotated[Precision | None, option(
        "Number formats of the step; default: what the framework would do on the machine."
    )],
    "layout": Annotated[list[str] | None, option(
        "Layout, such as tensor=8,pipeline=8,sequence; or a YAML file.", "--layout", metavar="NAME=VALUE,…|FILE"
    )],
    "links": Annotated[list[str] | None, option(
        "Link that takes precedence over the profile's link of the same tier.", "--link",
        metavar="'TIER, ALPHA, BANDWIDTH, DIRECTION'",
    )],
    "node_devices": Annotated[int | None, option("Devices in a node; default: the profile's.", min=1)],
    "scope": Annotated[Scope | None, option(
        "Scope of the rates: one device, a node or the system; default: the narrowest that all machines state."
    )],
    "interval": Annotated[float, option("Probability that an interval contains the truth.",
                                        min=LEAST_LEVEL, max=MOST_LEVEL)],
    "allow_uncovered": Annotated[bool, option("Leave out work that has no time; times are then lower bounds.",
                                              "--allow-uncovered")],
    "to_accuracy": Annotated[Path | None, option("Table of measured epochs to a target, by batch.",
                                                 "--to-accuracy", metavar="CSV")],
    "price": Annotated[str | None, option(
        "Price, such as '4.56 USD/h per node, 2018-04-01'; default: the price in the machine's profile.",
        metavar="'RATE per PART, DATE[, SOURCE]'",
    )],
    "carbon": Annotated[str | None, option("Carbon intensity of the grid: '0.38 kg/kWh, grid operator 2024'.",
                                           metavar="'INTENSITY, SOURCE'")],
    "to_wall": Annotated[str | None, option("Ratio of energy at the wall to the energy figures of chip or node.",
                                            "--to-wall", metavar="'FACTOR, SOURCE'")],
    "pue": Annotated[str | None, option("Ratio of the building's energy to that of its machines.",
                                        metavar="'FACTOR, SOURCE'")],
    "output": Annotated[Path, option("The file to write.", "--output", "-o")], "force": Force,
}  # fmt: skip
"""Options that have the same text in all verbs, by the name of the parameter."""
COMPLETED: Mapping[str, Callable[[str], list[str]]] = {
    **dict.fromkeys(("machine", "baseline", "target", "committed"), complete_machine),
    "model": complete_model, "models": complete_model, "profile": completer("model", "machine"),
    "suite": complete_suite, "campaign": complete_campaign,
}  # fmt: skip
"""Completion functions of profile names, by the name of the parameter."""


def write_answer(content: dict[str, Any], write: Callable[[dict[str, Any], Screen], str], as_json: bool) -> None:
    """Print a verb's answer on standard output, as text or as JSON."""
    if not as_json:
        print(write(content, standard_output()), end="")
        return
    from fomkit.output.files import to_json

    print(to_json(content, sys.stdout), end="")


def end_if_oversize(unfit: Sequence[str], *, allowed: bool) -> None:
    """End with exit code 1, after the answer, where a step does not fit any device."""
    found = list(dict.fromkeys(one.removesuffix(" (fomkit memory)") for one in unfit if one))
    if not found or allowed:
        return
    print_error(
        f"{'; '.join(found)}. Such a step cannot run: change the batch, the layout or the machine, or pass "
        "--allow-oversize to accept the figures."
    )
    raise typer.Exit(1)
