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
    return [name for name in names if name.startswith(incomplete) and not name.endswith((".suite", ".campaign"))]


def _with_ending(ending: str, incomplete: str) -> list[str]:
    from fomkit.profiles.locate import profile_names

    found = [name.removesuffix(ending) for name in profile_names("model_profiles") if name.endswith(ending)]
    return [name for name in found if name.startswith(incomplete)]


def complete_suite(incomplete: str) -> list[str]:
    """Name the suites that begin with what is typed."""
    return _with_ending(".suite", incomplete)


def complete_campaign(incomplete: str) -> list[str]:
    """Name the campaigns that begin with what is typed."""
    return _with_ending(".campaign", incomplete)
