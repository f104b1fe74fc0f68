"""Load and save model profiles: sizes, data and run in YAML, the op table and its decomposition in CSV.

A transformer may also be described by a recipe of its sizes alone (``fomkit/transformer/1``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os.path import isdir
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from fomkit.core.errors import FomkitError
from fomkit.core.model import Data, ModelProfile, Run, Unit
from fomkit.core.transformer import Transformer
from fomkit.core.units import count_text
from fomkit.files.csv import check_beside
from fomkit.files.op_csv import format_table, read_table
from fomkit.files.write import packed, write_set
from fomkit.ops.check import check_columns
from fomkit.ops.tables import empty_table, table_of_rows
from fomkit.profiles.locate import folders, locate, profile_names, user_cached_profile

if TYPE_CHECKING:
    import pandas as pd

    from fomkit.files.documents import Document
    from fomkit.profiles.records import ModelRecord

SCHEMA, RECIPE = "fomkit/model/1", "fomkit/transformer/1"
FOLDER: Final = "model_profiles"


def _table(path: Path, name: str, table: str, extra: tuple[str, ...] = ()) -> pd.DataFrame:
    if Path(name).name != name:
        raise FomkitError(str(path), f"the table {name!r} must be in the folder of this file. Give its name only.")
    check_beside(path.parent / name, path)
    found = read_table(path.parent / name, table, extra)
    if table == "OPS":
        check_columns(found, table, str(path.parent / name))
    return found


# Empty columns are not written: a network of one layer has no paths.
_EMPTY: Mapping[str, Mapping[str, Any]] = {
    "LAYERS": {"module": "", "op": ""},
    "ORDER": {"row": float("nan"), "freed_by": float("nan"), "module": "", "pass_name": ""},
}


def _whole(path: Path, name: str | None, table: str) -> pd.DataFrame | None:
    if name is None:
        return None
    found = _table(path, name, table)
    return found.assign(**{key: value for key, value in _EMPTY[table].items() if key not in found.columns})


def _read(document: Document, **absent: str) -> ModelRecord:
    """Read a model's YAML; ``absent``: keys that it must not have, with values to validate it with."""
    from fomkit.profiles.records import ModelRecord, check_record, check_schema

    check_schema(document, SCHEMA)
    for key, text in absent.items():
        if key in document.content:
            raise document.error((key,), f"{key!r} is not allowed here: facts contain no tables. Remove it.")
        document.content[key] = text
    record = check_record(document, ModelRecord, SCHEMA)
    for size, value in record.sizes.items():
        if value < 1:
            raise document.error(("sizes", size), f"sizes.{size} is {value}. Expected 1 or more.")
    return record


def _profile(
    record: ModelRecord,
    ops: pd.DataFrame,
    parts: pd.DataFrame,
    layers: pd.DataFrame | None,
    order: pd.DataFrame | None = None,
) -> ModelProfile:
    from fomkit.profiles.records import fields_of, measured_run

    own = {
        "title": record.title or record.name,
        "ops": ops,
        "parts": parts,
        "layers": layers,
        "order": order,
        "parameters_total": record.parameters.total if record.parameters else None,
        "parameters_trainable": record.parameters.trainable if record.parameters else None,
        "data": Data(**record.data.model_dump()),
        "run": Run(**record.run.model_dump()),
        "unit": Unit(**record.unit.model_dump()),
        "transformer": record.transformer.sizes if record.transformer else None,
        "measured": measured_run(record.measured) if record.measured else None,
    }
    return ModelProfile(**{**fields_of(record, ModelProfile), **own})


NOTES = "made by rule from the sizes, not traced: the kernels of Megatron-LM (docs/parallel.md)"
OF_EXPERTS = "how tokens spread over the experts is declared by the capacity factor, not predicted"


def transformer_profile(
    shape: Transformer, name: str, *, title: str = "", batch: int = 1, data: Data | None = None,
    run: Run | None = None,
) -> ModelProfile:  # fmt: skip
    """Create a model profile of a transformer from its sizes.

    >>> gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    >>> round(transformer_profile(gpt, "gpt-22b").parameters_total / 1e9, 2)
    22.07
    """
    from fomkit.parallel.step import check_split
    from fomkit.parallel.transformer import sizes_rows
    from fomkit.plan.transformer_step import NARROW

    check_split(shape, 1, sequence=False)
    made = (
        f"transformer: {count_text(shape.blocks, 'block')}, {shape.hidden:,} wide, "
        f"{count_text(shape.heads, 'head')}, {count_text(shape.seq, 'position')}"
        + (f", {shape.experts} experts, {shape.top_k} for each token" if shape.experts else "")
    )
    notes = (NOTES, NARROW.format("bf16"), *[OF_EXPERTS] * bool(shape.experts))
    ops = table_of_rows(sizes_rows(shape, "bf16", shape.parameters), "OPS")
    return ModelProfile(
        name=name, title=title or made, ops=ops, parts=empty_table("OPS"),
        sizes={"batch": batch}, traced_with={"framework": "rule", "device": "sizes", "mode": "train"},
        parameters_total=shape.parameters, parameters_trainable=shape.parameters, data=data or Data(),
        run=run or Run(), optimizer={"rule": "adam", "impl": "fused"}, notes=notes, transformer=shape,
    )  # fmt: skip


def _made_by(document: Document) -> ModelProfile:
    from fomkit.profiles.declared import RecipeRecord
    from fomkit.profiles.records import check_record

    record = check_record(document, RecipeRecord, RECIPE)
    shape = record.transformer.sizes
    if shape.latent is None and shape.hidden % shape.heads:
        where = document.where(("transformer", "heads"))
        raise FomkitError(where, f"heads {shape.heads} do not divide hidden {shape.hidden}. Choose a divisor.")
    each, all_heads = 2 * shape.head_dim, (shape.heads + shape.kv_heads) * shape.head_dim
    if shape.head_norm not in (0, each, all_heads):
        where = document.where(("transformer", "head_norm"))
        expected = (
            f"Expected: {each:,} for norms of each head, {all_heads:,} for norms of all heads together, or 0."
        )
        raise FomkitError(where, f"head_norm is {shape.head_norm:,}. {expected}")
    wanted = record.transformer.model_fields_set & {"window", "window_share"}
    if wanted and not (shape.window and shape.attention == "fused"):
        where = document.where(("transformer", min(wanted)))
        raise FomkitError(
            where, "a window needs 'window: TOKENS' and 'attention: fused'. Add these, or leave it out."
        )
    return transformer_profile(
        shape, record.name, title=record.title, batch=record.batch, data=Data(train_samples=record.train_samples),
        run=Run(epochs=record.epochs),
    )  # fmt: skip


def load_recipe(path: Path) -> ModelProfile:
    """Make the profile of a transformer from a file of its sizes; refuse any other file."""
    from fomkit.files.documents import load_document

    document = load_document(path)
    if document.content.get("schema") == SCHEMA:
        do = f"Estimate it: fomkit estimate {quote(path.as_posix())} --target MACHINE"
        raise document.error(("schema",), f"is already a model profile. {do}, or give the file it was made from.")
    return _made_by(document)


TRACED = (".py", ".onnx", ".json")
"""Endings of files that can be profiled in place of a model: code, graphs, a transformer's config.json."""


def code_last(models: Sequence[Any], load: Callable[[Any], ModelProfile]) -> list[ModelProfile]:
    """Load models in their order, but code after all others, so that a wrong name is told before code runs."""
    found: dict[int, ModelProfile] = {}
    order = sorted(range(len(models)), key=lambda place: not _is_named(models[place]))
    for place in order:
        found[place] = load(models[place])
    return [found[place] for place in range(len(models))]


def _is_named(model: object) -> bool:
    return isinstance(model, str | Path) and Path(model).suffix not in TRACED


def load_model(name: str | Path) -> ModelProfile:
    """Load a model profile by path or name."""
    return replace(_load(locate(str(name), FOLDER)), asked_as=str(name))


def _load(path: Path) -> ModelProfile:
    """Load a model file and its tables, from the cache if possible."""
    return user_cached_profile("model", (path,), lambda: _checked(path))[0]


def _checked(path: Path) -> tuple[ModelProfile, list[str]]:
    """Read and check a model file and its tables, or make a recipe's; also return the names of the tables."""
    from fomkit.files.documents import load_document

    document = load_document(path)
    stated, schema = document.content, document.content.get("schema")
    if schema == RECIPE or (schema != SCHEMA and "transformer" in stated and "ops" not in stated):
        return _made_by(document), []
    record = _read(document)
    parts = _table(path, record.parts, "OPS", ("of",)) if record.parts else empty_table("OPS")
    ops = _table(path, record.ops, "OPS")
    layers, order = _whole(path, record.layers, "LAYERS"), _whole(path, record.order, "ORDER")
    names = (record.ops, record.parts, record.layers, record.order)
    return _profile(record, ops, parts, layers, order), [name for name in names if name is not None]


def load_model_facts(path: Path) -> ModelProfile:
    """Load a model file without ``ops``: name, sizes, data and run, to be joined with an op table."""
    from fomkit.files.documents import load_document

    record = _read(load_document(locate(str(path), FOLDER)), ops="")
    return _profile(record, empty_table("OPS"), empty_table("OPS"), None)


def model_names() -> list[str]:
    """Return the names of the model profiles in the nearest folder: ``./model_profiles``, else the packaged one.

    Models in subfolders are not included. A file counts if it contains ``schema: fomkit/model/1``, so that broken
    ones are reported later.
    """
    return _models_in(folders(FOLDER)[0])


def _models_in(folder: Path) -> list[str]:
    from fomkit.files.documents import read_text

    return [str(path) for path in sorted(folder.glob("*.yaml")) if f"schema: {SCHEMA}" in read_text(path)]


def models_named(name: str) -> list[str]:
    """Return the models that a name means: itself, or those of a folder of models, such as candle."""
    is_file = name.endswith((".yaml", ".yml"))
    is_path = name.startswith((".", "/")) or name not in profile_names(FOLDER)
    roots = () if is_file else (*folders(FOLDER), *([Path()] if is_path else []))
    for folder in (root / name for root in roots):
        if name and isdir(folder) and (found := _models_in(folder)):
            return found
    return [name]


def _transformer(shape: Transformer) -> dict[str, Any]:
    """Return sizes as content of the file; those of experts, or of another style, only if they apply."""
    omitted = set[str]() if shape.experts else {"experts", "top_k", "capacity_factor"}
    omitted |= set() if shape.gated else {"style", "kv_heads", "head_dim", "tied"}
    optional = ("head_norm", "qkv_bias", "window", "shared", "dense_blocks", "dense_feed_forward", "latent")
    omitted |= {name for name in optional if not getattr(shape, name)}
    omitted |= set() if shape.window else {"window_share"}
    omitted |= {"kv_heads", "head_dim"} if shape.latent else set()
    omitted |= set() if shape.norms > 2 else {"norms"}
    found = {name: value for name, value in vars(replace(shape)).items() if name not in omitted}
    return found | ({"latent": vars(shape.latent)} if shape.latent else {})


def model_content(model: ModelProfile, stem: str) -> dict[str, Any]:
    """Return a model as content of its YAML file, without unknown fields."""
    from fomkit.profiles.records import ModelRecord, content_of, known, measured_block

    totals = {"total": model.parameters_total, "trainable": model.parameters_trainable}
    own: dict[str, Any] = {
        "schema_": SCHEMA,
        "parameters": known(totals),
        "data": known(vars(model.data)),
        "run": known(vars(model.run)),
        "unit": vars(model.unit),
        "ops": f"{stem}.ops.csv",
        "parts": f"{stem}.parts.csv" if len(model.parts) else None,
        "layers": f"{stem}.layers.csv" if model.layers is not None else None,
        "order": f"{stem}.order.csv.gz" if model.order is not None else None,
        "transformer": _transformer(model.transformer) if model.transformer is not None else None,
        "measured": measured_block(model.measured) if model.measured else None,
    }
    content = content_of(model, ModelRecord, **own)
    return {key: value for key, value in content.items() if value not in (None, {}, [])}


def tables_beside(path: Path) -> tuple[Path, Path, Path, Path]:
    """Return the paths of the tables of ops, parts, layers and order that belong to a model's YAML file."""
    names = ("ops.csv", "parts.csv", "layers.csv", "order.csv.gz")
    ops, parts, layers, order = (path.with_name(f"{path.stem}.{name}") for name in names)
    return ops, parts, layers, order


def save_model(model: ModelProfile, path: Path) -> list[Path]:
    """Write NAME.yaml, NAME.ops.csv and any parts, layers and order, all or none; return the files written."""
    from fomkit.files.documents import format_document

    ops, parts, layers, order = tables_beside(path)
    content = format_document(model_content(model, path.stem))
    files: dict[Path, str | bytes] = {path: content, ops: format_table(model.ops, "OPS")}
    if len(model.parts):
        files[parts] = format_table(model.parts, "OPS", ("of",))
    if model.layers is not None:
        files[layers] = format_table(model.layers, "LAYERS")
    if model.order is not None:
        files[order] = packed(model.order, "ORDER")
    return write_set(files)
