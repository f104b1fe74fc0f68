"""Profiles on disk: found by path or name, read strictly, written whole."""

from fomkit.profiles.fits import load_fits, save_fits
from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import load_model, load_model_facts, model_names, models_named, save_model
from fomkit.profiles.save_machine import save_machine
from fomkit.profiles.suites import load_suite
from fomkit.profiles.write import check_absent, whole_file, write_whole

__all__ = [
    "check_absent",
    "load_fits",
    "load_machine",
    "load_model",
    "load_model_facts",
    "load_suite",
    "model_names",
    "models_named",
    "save_fits",
    "save_machine",
    "save_model",
    "whole_file",
    "write_whole",
]
