"""Count properties of the code that have upper limits: lines, import cycles, single importers, and others.

python tests/house_counts.py     # print the present counts, each with its limit
"""

from __future__ import annotations

import ast
import collections
import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fomkit"
CEILINGS = Path(__file__).resolve().parent / "house_ceilings.csv"
ADDED = CEILINGS.with_name("house_added.csv")
REGISTRY = tuple(
    f"fomkit.ops.{name}" for name in ("families", "pricing", "conv_methods", "formulas", "tables", "check")
)
CHAPTER_LINES = 130  # a shorter module that only one other imports belongs inside that one


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the parsed modules by dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text("utf-8"))
    return found


def _is_package(name: str) -> bool:
    return (ROOT / Path(*name.split("."))).is_dir()


def _run_time(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk the nodes of a tree, without those under TYPE_CHECKING."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    return (node for node in ast.walk(tree) if id(node) not in skipped)


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Return the modules of fomkit that each module imports, at its top or inside functions."""
    found = {}
    for name, tree in trees().items():
        others = set()
        for node in _run_time(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fomkit":
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    others.add(whole if whole in trees() else str(node.module))
            elif isinstance(node, ast.Import):
                others |= {alias.name for alias in node.names if alias.name in trees()}
        found[name] = frozenset(others - {name})
    return found


def circles(edges: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return sets of modules that import each other in a cycle (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in edges.get(name, ()):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in edges:
        if name not in order:
            visit(name)
    return found


def single_importers() -> list[str]:
    """Return the short modules that only one other module imports."""
    users = collections.Counter(other for others in imports().values() for other in others)
    return [
        name
        for name, count in users.items()
        if count == 1 and not _is_package(name) and _lines(name) < CHAPTER_LINES
    ]


def _lines(name: str) -> int:
    return len((ROOT / Path(*name.split("."))).with_suffix(".py").read_text("utf-8").splitlines())


@cache
def _kinds() -> frozenset[str]:
    from fomkit.ops.kinds import KINDS

    return frozenset(KINDS)


def _names_kind(node: ast.expr) -> bool:
    inner = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else [node]
    return any(isinstance(one, ast.Constant) and one.value in _kinds() for one in inner)


def kind_comparisons() -> int:
    """Count comparisons and matches with the name of a kind outside the registry."""
    found = 0
    for name, tree in trees().items():
        if name.startswith(REGISTRY):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                found += any(_names_kind(one) for one in (node.left, *node.comparators))
            elif isinstance(node, ast.MatchValue):
                found += _names_kind(node.value)
    return found


def untyped_returns() -> int:
    """Count functions that return a dict or mapping from str to Any."""
    bags = {"dict[str, Any]", "Mapping[str, Any]"}
    return sum(
        isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) in bags
        for tree in trees().values()
        for node in ast.walk(tree)
    )


def shared_private_names() -> int:
    """Count private module-level functions whose name is used in three or more modules."""
    names = collections.Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_")
    )
    return sum(count for count in names.values() if count >= 3)


@cache
def counts() -> dict[str, float]:
    """Return all counts that have an upper limit."""
    paths = sorted(PACKAGE.rglob("*.py"))
    lines = [line for path in paths for line in path.read_text("utf-8").splitlines()]
    folders = collections.Counter(path.parent for path in paths)
    functions = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    import_lines = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return {
        "modules": len(paths),
        "lines": len(lines),
        "statements": sum(isinstance(node, ast.stmt) for tree in trees().values() for node in ast.walk(tree)),
        "functions": len(functions),
        "folders over 20 modules": sum(count > 20 for count in folders.values()),
        "modules in circles": sum(map(len, circles(imports()))),
        "single importers under 130 lines": len(single_importers()),
        "kind comparisons outside the registry": kind_comparisons(),
        "functions that return dict[str, Any]": untyped_returns(),
        "private functions of a name used three times": shared_private_names(),
        "import lines": import_lines,
    }


def ceilings() -> dict[str, float]:
    """Read the upper limits: those of the restructured code, plus the additions granted to later changes."""
    with CEILINGS.open(encoding="utf-8", newline="") as file:
        found = {row["count"]: float(row["at_most"]) for row in csv.DictReader(file)}
    with ADDED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["count"]] += float(row["added"])
    return found


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(ROOT))
    for name, value in counts().items():
        sys.stdout.write(f"{name:48} {value:>10,g}   at most {ceilings().get(name, float('nan')):,g}\n")
