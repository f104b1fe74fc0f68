"""``fomkit profile``: a model.py becomes a model profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fomkit.cli.screen import Quiet, progress
from fomkit.cli.sizes import parse_sizes
from fomkit.errors import FomkitError

if TYPE_CHECKING:
    from fomkit.workload import ModelProfile


Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=N", help="A size that inputs names, traced at this value; default: its own."
    ),
]


def profile(
    source: Annotated[Path, typer.Argument(metavar="FILE.py", help="The file with the model. It is run.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The profile to write; default: ./NAME.yaml.")
    ] = None,
    mode: Annotated[
        Literal["train", "infer"], typer.Option(help="A training step, or the forward pass only.")
    ] = "train",
    batch: Annotated[int | None, typer.Option(min=1, help="Samples in the step; default: the file's own.")] = None,
    sizes: Sizes = None,
    name: Annotated[str | None, typer.Option(help="Name of the profile; default: that of the file.")] = None,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Seconds that one attempt may take.")] = 300.0,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Trace a PyTorch model by shapes alone: no data, no accelerator, no memory for weights.

    This runs your file, so let it be one you trust. It gives workload() returning fomkit.Workload, or the names
    model, inputs, loss_fn, optimizer, batch_size, train_samples and epochs.

    Examples:

      fomkit profile model.py

      fomkit profile model.py --mode infer --batch 1 -o served.yaml
    """
    from fomkit.profiles import check_absent, save_model
    from fomkit.profiles.models import tables_beside
    from fomkit.trace import profile_file

    path = output or Path(f"{name or source.stem}.yaml")
    if path.suffix not in (".yaml", ".yml"):
        raise FomkitError(str(path), "a model profile is a YAML file. Write, for example, '-o model.yaml'.")
    check_absent([path, *tables_beside(path)], force)
    with progress(f"profiling {source.name}", quiet=quiet):
        found = profile_file(
            source, mode=mode, batch=batch, sizes=parse_sizes(sizes or ()), time_limit_s=time_limit, name=name
        )
    written = save_model(found, path)
    print("\n".join(_summary(found)))
    print(f"Written: {', '.join(map(str, written))}")


def _what_a_run_lacks(model: ModelProfile) -> list[str]:
    """Name what keeps an estimate at the step."""
    known = {"train_samples": model.data.train_samples, "epochs": model.run.epochs}
    lacking = [name for name, value in known.items() if value is None]
    if not lacking or model.traced_with.get("mode") == "infer":
        return []
    return [f"note: no run and no units per day without {' and '.join(lacking)}; the file may give them"]


def _summary(model: ModelProfile) -> list[str]:
    """Say what was found, for people."""
    from fomkit.costs import add_costs
    from fomkit.quantities import format_quantity
    from fomkit.resize import resize_ops
    from fomkit.rollup.work import work_per_pass

    work = work_per_pass(add_costs(resize_ops(model.ops, model.sizes, model.name)))
    device = "the meta device" if model.traced_with["device"] == "meta" else "fake tensors"
    return [
        f"{model.name}: {model.title}, batch {model.batch}, traced on {device}",
        f"parameters: {model.parameters_total:,}, of them trainable {model.parameters_trainable:,}",
        "work: " + ", ".join(f"{name} {format_quantity(flop, 'flop')}" for name, flop in work.items()),
        f"table: {len(model.ops):,} rows, {len(model.parts):,} parts of rows found at the call",
        *(f"unsupported: {name}" for name in model.unsupported),
        *(f"note: {note}" for note in model.notes),
        *_what_a_run_lacks(model),
    ]
