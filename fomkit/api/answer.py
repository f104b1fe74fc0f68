"""What a command says, for a notebook: the whole content, its main list as a table, and the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Answer:
    """What a command says.

    Attributes
    ----------
    content : mapping
        Everything, as ``--json`` prints it; ``content["schema"]`` names its form.
    rows : sequence of mapping
        Its main list, as ``-o FILE.csv`` writes it.
    write : function of the content
        Makes the text that the command line prints.
    """

    content: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    write: Callable[[dict[str, Any]], str]

    @property
    def table(self) -> pd.DataFrame:
        """The main list, one column a leaf (``time_s.low``)."""
        from fomkit.report.files import to_frame

        return to_frame(self.rows)

    def summary(self) -> str:
        """Write it as the text that the command line prints."""
        return self.write(dict(self.content))

    def __repr__(self) -> str:
        return f"<{self.content['schema']}: .summary(), .table ({len(self.rows)} rows), .content>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"
