"""Write the formulas of the convolution methods as plain numpy: the text of `compiled_methods`."""

from __future__ import annotations

from fomkit.costs.conv_methods import FORMULAS, parts
from fomkit.costs.generate import HEAD, text_of

_HEAD = (
    HEAD.replace("import CompiledCost, Row, Variant", "import Formula, Row")
    .replace(
        "from fomkit.costs.formula", "from fomkit.costs.conv_methods import MethodCost\nfrom fomkit.costs.formula"
    )
    .replace("ARG001, ", "")
)


def generate_methods() -> str:
    """Give the source text of `fomkit.costs.compiled_methods`, from the formulas as they are now.

    Equal costs become one function, named after the first method and pass that has them.
    """
    functions = [f"\ndef {name}(op: Row) -> Any:\n    return {text_of(part)}\n" for name, part in parts().items()]
    names: dict[str, str] = {}
    table = []
    for method, formulas in FORMULAS.items():
        table.append(f'    "{method}": {{\n')
        for pass_name, cost in formulas().items():
            lines = "".join(f"        {name}={text_of(part)},\n" for name, part in cost._asdict().items())
            function = names.setdefault(lines, f"{method}_{pass_name}")
            table.append(f'        "{pass_name}": {function},\n')
        table.append("    },\n")
    functions += [
        f"\ndef {name}(op: Row) -> MethodCost:\n    return MethodCost(\n{lines}    )\n"
        for lines, name in names.items()
    ]
    known = "".join(f'    "{name}": {name},\n' for name in parts())
    head = f"\n\nPARTS: dict[str, Formula] = {{\n{known}}}\n\nCOMPILED: dict[str, dict[str, Formula]] = {{\n"
    return "".join([_HEAD, "\n", *functions, head, *table, "}\n"])
