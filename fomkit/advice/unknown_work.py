"""Work that no figure here counts."""

from __future__ import annotations

from fomkit.advice.case import Case
from fomkit.advice.finding import Finding, does_not_apply


def unpriced_ops(case: Case) -> list[Finding]:
    """Find ops without a rule or without a time."""
    missing = case.before.ops[case.before.ops["time_s"].isna()]
    if not len(missing) and not case.model.unsupported:
        return [does_not_apply("every op has a rule and a time")]
    said, columns = [], []
    if len(missing):
        counts = missing.groupby("kind")["count"].sum().sort_values(ascending=False)
        listed = ", ".join(f"{kind} ({count:,.0f})" for kind, count in counts.items())
        said.append(f"Without a time on {case.machine.name}: {listed}.")
        columns.append("time_s")
    if case.model.unsupported:
        said.append(f"Without a rule: {', '.join(case.model.unsupported)}.")
        columns.append("unsupported of the model profile")
    return [
        Finding(
            says=" ".join(said),
            do="Time these ops on the machine and add the timings to its profile, or state its peak and bandwidth "
            "(docs/profiles.md).",
            sure="What they take is unknown, so every time here is a lower bound.",
            urgent=True,
            column=", ".join(columns),
        )
    ]
