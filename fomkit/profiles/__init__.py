"""Profiles on disk: found by path or name, read strictly, written whole."""

from fomkit.profiles.machines import load_machine
from fomkit.profiles.models import is_model, load_model, save_model
from fomkit.profiles.save_machine import save_machine

__all__ = ["is_model", "load_machine", "load_model", "save_machine", "save_model"]
