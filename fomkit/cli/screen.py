"""What the user sees while waiting, and how wide and colourful the answer may be."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from fomkit.report.screen import PLAIN, Screen

if TYPE_CHECKING:
    from rich.progress import Progress

DELAY_S = 1.0
"""Work that ends sooner shows no progress."""

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Advance = Callable[[], None]
Tell = Callable[[str], None]


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def standard_output() -> Screen:
    """Measure standard output: a terminal has a width and colours, a pipe or a file has neither."""
    if not sys.stdout.isatty():
        return PLAIN
    return Screen(max(shutil.get_terminal_size().columns, 60), _coloured(sys.stdout))


def complain(message: str) -> None:
    """Print one message about a mistake on standard error."""
    prefix = typer.style("fomkit:", fg="red", bold=True) if _coloured(sys.stderr) else "fomkit:"
    print(f"{prefix} {message}", file=sys.stderr)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


@contextmanager
def telling(what: str, *, quiet: bool = False) -> Iterator[Tell]:
    """Show on a terminal what is being done, in words that the work changes; the line goes when the work ends."""
    if quiet or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(text)


@contextmanager
def progress(what: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Advance]:
    """Show on a terminal that work goes on, once it has taken a second; the bar goes when the work ends.

    Parameters
    ----------
    what : str
        The work, for example ``"profiling model.py"``.
    total : int, optional
        Its parts, each of which calls what this gives; without it the bar only moves.
    quiet : bool
        Show nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    done, ended = 0, threading.Event()

    def advance() -> None:
        nonlocal done
        done += 1

    def show() -> None:
        if ended.wait(DELAY_S):
            return
        with _bar() as bar:
            task = bar.add_task(what, total=total)
            while not ended.wait(0.1):
                bar.update(task, completed=done)

    # A thread of its own, so that work inside one long call of a library still shows that time passes.
    shown = threading.Thread(target=show, daemon=True)
    shown.start()
    try:
        yield advance
    finally:
        ended.set()
        shown.join()
