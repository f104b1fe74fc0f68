"""Names of profiles, completed by the shell."""

from __future__ import annotations


def complete_machine(incomplete: str) -> list[str]:
    """Name the machine profiles that begin with what is typed."""
    from fomkit.profiles.locate import profile_names

    return [name for name in profile_names("machine_profiles") if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Name the model profiles that begin with what is typed."""
    from fomkit.profiles.locate import profile_names

    names = profile_names("model_profiles")
    return [name for name in names if name.startswith(incomplete) and not name.endswith(".suite")]


def complete_suite(incomplete: str) -> list[str]:
    """Name the suites that begin with what is typed."""
    from fomkit.profiles.locate import profile_names

    found = [name.removesuffix(".suite") for name in profile_names("model_profiles") if name.endswith(".suite")]
    return [name for name in found if name.startswith(incomplete)]
