"""Measurements of whole models: tables in and out, and the records of others that become such tables."""

from fomkit.measurements.imported import IMPORTERS, ImportedMeasurements, Importer, import_measurements
from fomkit.measurements.table import format_measurements, read_measurements

__all__ = [
    "IMPORTERS",
    "ImportedMeasurements",
    "Importer",
    "format_measurements",
    "import_measurements",
    "read_measurements",
]
