"""The report as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fomkit.dossier.gathered import gather
from fomkit.errors import FomkitError
from fomkit.measurement import Measurement
from fomkit.profiles import write_whole
from fomkit.profiles.write import check_absent
from fomkit.report.book_page import check_libraries, render_book
from fomkit.study.compare import Comparison
from fomkit.study.estimate import Estimate


def write_comparison(
    result: Comparison,
    path: Path,
    *,
    rows: Sequence[Measurement] = (),
    aside: str = "",
    nodes: Sequence[int] | None = None,
) -> None:
    """Write everything that is known of some estimates as one HTML file, whole or not at all.

    Parameters
    ----------
    result : Comparison
    path : Path
        Replaced where it exists.
    rows, aside, nodes
        As of `gather`.

    Raises
    ------
    FomkitError
        When the path cannot be written, a library is absent, or there are more estimates than a page holds.
    """
    check_libraries()
    check_absent([path], force=True)
    write_whole(path, render_book(gather(result, rows=rows, aside=aside, nodes=nodes)))


def write_report(
    estimates: Estimate | Sequence[Estimate], path: str | Path, *, nodes: Sequence[int] | None = None
) -> None:
    """Write everything that is known of some estimates as one HTML file that needs no network.

    Parameters
    ----------
    estimates : Estimate or sequence of Estimate
        12 at most; single figures of one are ``estimate.plot.roofline()`` and the like.
    path : path
        Ends in ``.html``; replaced where it exists, whole or not at all.
    nodes : sequence of int, optional
        Numbers of nodes to scale to; default: what the machine's profile names.

    Raises
    ------
    FomkitError
        When the path cannot be written, or a library that pages need is not installed.
    """
    found = (estimates,) if isinstance(estimates, Estimate) else tuple(estimates)
    if not found or not all(isinstance(one, Estimate) for one in found):
        raise FomkitError("write_report", "needs estimates. Give one, or a list of some, from fomkit.estimate().")
    if Path(path).suffix != ".html":
        raise FomkitError(str(path), "has an ending that a report cannot have. Use .html.")
    write_comparison(Comparison(found, (), ()), Path(path), nodes=nodes)
