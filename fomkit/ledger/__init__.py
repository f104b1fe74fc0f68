"""What a spreadsheet holds as inputs, and what its formulas must give: records and their evaluation, no files."""

from fomkit.ledger.evaluate import evaluate
from fomkit.ledger.records import Case, Given, Ledger, OpLine, WorkloadFacts
from fomkit.ledger.values import CaseValues, Values

__all__ = ["Case", "CaseValues", "Given", "Ledger", "OpLine", "Values", "WorkloadFacts", "evaluate"]
