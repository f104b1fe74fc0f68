"""Conventions of the code that no linter checks."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from house_counts import trees

from fomkit.ops.check import check_table
from fomkit.ops.kinds import KINDS
from fomkit.ops.tables import TABLES, column_names


def sources(root: Path) -> list[Path]:
    return sorted((root / "fomkit").rglob("*.py"))


def test_files_are_small(root: Path) -> None:
    lines = {path: len(path.read_text().splitlines()) for path in sources(root)}
    assert max(lines.values()) <= 450, max(lines, key=lambda path: lines[path])


def test_functions_are_short_and_nothing_asserts() -> None:
    for name, tree in trees().items():
        for node in ast.walk(tree):
            assert not isinstance(node, ast.Assert), f"{name}:{node.lineno}"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{name}: {node.name}"


def test_no_room_for_leftovers(root: Path) -> None:
    for path in sources(root):
        assert not {"utils", "helpers", "common", "misc"} & {*path.parts, path.stem}


def test_flops_is_never_a_name() -> None:
    for name, tree in trees().items():
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert "flops" not in {one.lower() for one in names}, name


def test_gibi_lives_in_quantities_only(root: Path) -> None:
    for path in sources(root):
        if path.name != "units.py":
            assert not re.search(r"2\s*\*\*\s*30|1024\s*\*\*|1 << 30", path.read_text()), path


def test_machines_live_in_profiles_only() -> None:
    for tree in trees().values():
        code = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        assert 15.7e12 not in code
        assert 900e9 not in code


def test_the_readme_names_what_ci_runs(root: Path) -> None:
    readme = (root / "README.md").read_text()
    assert "fomkit estimate --target machine_profiles/v100.yaml" in readme
    block = readme.split("<!-- test command -->")[1].split("```")[1]
    assert block.strip().startswith("sh\npython3 -m venv .venv-test")
    assert "pytest" in block


def test_every_documented_verb_exists(root: Path) -> None:
    from fomkit.cli.main import VERBS

    questions, readme = (
        set(re.findall(r"`fomkit (\w+)", (root / page).read_text())) for page in ("docs/questions.md", "README.md")
    )
    assert questions == set(VERBS)
    assert readme <= questions


def test_scripts_import_only_what_the_package_has(root: Path) -> None:
    """No test runs all of the benchmarks."""
    lacking = []
    for path in sorted((root / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fomkit":
                module = importlib.import_module(str(node.module))
                lacking += [
                    f"{path.name}: {node.module}.{one.name}"
                    for one in node.names
                    if not hasattr(module, one.name) and find_spec(f"{node.module}.{one.name}") is None
                ]
    assert not lacking


def test_columns_have_one_meaning() -> None:
    for table, columns in TABLES.items():
        names = [column.name for column in columns]
        assert len(names) == len(set(names)), table
        assert all(column.doc for column in columns)
    dimensions = {name for kind in KINDS.values() for name in kind.columns}
    assert dimensions <= set(column_names("OPS"))


def test_a_table_without_a_needed_column_is_refused() -> None:
    import pandas as pd

    from fomkit.core.errors import FomkitError

    ops = pd.DataFrame(
        {"op": ["mm"], "kind": ["gemm"], "dtype": ["fp32"], "engine": ["vector"], "pass_name": ["forward"],
         "count": [1.0], "m": [4.0], "n": [4.0], "b": [1.0]}
    )  # fmt: skip
    with pytest.raises(FomkitError, match=r"the column 'k' is missing, which kind gemm needs"):
        check_table(ops, "OPS", "ops.csv")
    with pytest.raises(FomkitError, match=r"row 0: 'k' is empty"):
        check_table(ops.assign(k=float("nan")), "OPS", "ops.csv")
    with pytest.raises(FomkitError, match=r"'gem' is not a kind of op"):
        check_table(ops.assign(k=4.0, kind="gem"), "OPS", "ops.csv")
    with pytest.raises(FomkitError, match=r"must be float64"):
        check_table(ops.assign(k=4), "OPS", "ops.csv")
    check_table(ops.assign(k=4.0), "OPS", "ops.csv")
