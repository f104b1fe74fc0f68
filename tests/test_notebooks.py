"""Notebooks run and show their committed outputs; ``python tests/test_notebooks.py`` rewrites them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import nbformat
import pandas as pd
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
OF_THIS_RUN = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)? MB, self-contained")
"""Addresses, and the size of a page that holds libraries."""
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")
IN_A_KERNEL = "03-vendor-discussion"
"""Runs as for a user, in a kernel; the others run in this process, which has libraries, machines and fits."""


def run(path: Path) -> Any:
    """Return a notebook with what its cells show now, in a kernel of its own."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute(env={**os.environ, "SHELL": "/bin/sh"})  # newer shells tell commands how wide a screen is
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def run_here(path: Path) -> Any:
    """Return a notebook with what its cells show now, in this process: other names, but the same modules."""
    import altair as alt
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    notebook, main, values = nbformat.read(path, as_version=4), sys.modules["__main__"], list[Any]()
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    shell.display_trap.hook = values.append
    as_in_a_kernel = pd.option_context("display.max_columns", 20)
    undone = alt.renderers.enable("default")  # a notebook's choice of how pictures are shown
    with contextlib.chdir(path.parent), mock.patch.dict(os.environ), as_in_a_kernel, undone:
        try:
            for cell in (one for one in notebook.cells if one.cell_type == "code"):
                with capture_output() as told:
                    shell.run_cell(cell.source).raise_error()
                shown_early = [one.data for one in told.outputs]
                last = [shell.display_formatter.format(one)[0] for one in values if one is not None]
                values.clear()
                cell.outputs = [{"text": told.stdout}, *({"data": one} for one in (*shown_early, *last))]
        finally:
            sys.modules["__main__"] = main
    return notebook


def shown(notebook: Any) -> list[tuple[str, str, list[str]]]:
    """Return what each cell shows: the source, the text with six digits of each number, the kinds of pictures."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        parts = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in outputs]
        text = OF_THIS_RUN.sub("…", "".join(parts))
        rounded = NUMBER.sub(lambda number: f"{float(number[0]):.6g}", text)
        pictures = [kind for one in outputs for kind in one.get("data", {}) if kind.startswith("image/")]
        found.append((cell.source, rounded, pictures))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_it_shows_what_it_is_committed_with(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    kept = nbformat.read(path, as_version=4)
    assert shown(run(path) if name == IN_A_KERNEL else run_here(path)) == shown(kept)
    # Pictures are in the file; nothing comes from a network when somebody looks at it.
    assert "https://cdn" not in path.read_text(encoding="utf-8")


def test_the_assignments_page_has_the_notebooks_figures() -> None:
    notebook = nbformat.read(FOLDER / "06-assignment.ipynb", as_version=4)
    numbers = [float(number) for _, text, _ in shown(notebook) for number in re.findall(r"\d+(?:\.\d+)?", text)]
    known = {f"{number:,.{digits}f}" for number in numbers for digits in (0, 1, 2)}
    page = (FOLDER.parent / "docs" / "assignment.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| (P1B3|NT3) ", line)]
    text = " ".join(cell for line in rows for cell in line.split("|")[3:])
    stated = re.findall(r"[\d,]*\d(?:\.\d+)?", text)
    assert len(stated) > 90
    assert not {number for number in stated if number not in known}


def test_the_assignments_words_have_the_notebooks_figures() -> None:
    """Figures in sentences, of which the notebook prints the parts."""
    cells = [text for _, text, _ in shown(nbformat.read(FOLDER / "06-assignment.ipynb", as_version=4))]
    lines = [line.split() for text in cells for line in text.splitlines()]
    rows = {tuple(words[1:5]): [*map(float, words[5:])] for words in lines if words and words[0].isdigit()}
    page = " ".join((FOLDER.parent / "docs" / "assignment.md").read_text(encoding="utf-8").split())
    error = re.search(r"middle (\d+) %, largest (\d+) %", "".join(cells))
    assert error
    assert f"The middle error is {error[1]} %, the largest {error[2]} %." in page
    by_torch, by_keras = ((2e3 / real, 2e3 / told) for real, _, _, told in (
        rows["nt3", one, "infer", "2"] for one in ("torch", "tensorflow")))  # fmt: skip
    assert f"({by_keras[0]:.0f} against {by_keras[1]:.0f} ms)" in page
    assert f"({by_torch[0]:.0f} against {by_torch[1]:.0f} ms)" in page
    (measured, told), (_, told_p1b3) = (
        next([*map(float, words[1:])] for words in lines if words[:1] == [name] and len(words) == 3)
        for name in ("nt3", "p1b3")
    )
    assert f"{measured:.0f} samples a second, projected {told:.0f}. The device explains {measured / told:.0%}" in (
        page.replace(" %", "%")
    )
    assert f"projected {told_p1b3:,.0f}. The device explains 0.2 %" in page


if __name__ == "__main__":
    for one in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(one), one)
