"""The dossier of an estimate: everything that is known of it, put together for one page."""

from fomkit.dossier.gathered import check_few, gather
from fomkit.dossier.write import write_comparison, write_report

__all__ = ["check_few", "gather", "write_comparison", "write_report"]
