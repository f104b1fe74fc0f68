"""The profile of a transformer from a recipe (``fomkit/transformer/1``), which states its sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from pydantic import Field

from fomkit.core.errors import FomkitError
from fomkit.core.model import Data, ModelProfile, Run, Transformer
from fomkit.files.op_csv import empty_table
from fomkit.files.yaml import load_document
from fomkit.parallel.layout import check_split
from fomkit.parallel.transformer import profile_table
from fomkit.plan.transformer_step import NARROW
from fomkit.profiles import models
from fomkit.profiles.records import Record, TransformerRecord, check_record, check_schema

SCHEMA = "fomkit/transformer/1"
NOTES = (
    "made by rule from the sizes, not traced: the kernels of Megatron-LM (docs/parallel.md)",
    NARROW.format("bf16"),
)
OF_EXPERTS = "how tokens spread over the experts is declared by the capacity factor, not predicted"


class RecipeRecord(Record):
    """A recipe file."""

    schema_: str = Field(alias="schema")
    name: str
    transformer: TransformerRecord
    title: str = ""
    batch: int = Field(default=1, ge=1)
    train_samples: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)


def transformer_profile(
    shape: Transformer, name: str, *, title: str = "", batch: int = 1, data: Data | None = None,
    run: Run | None = None,
) -> ModelProfile:  # fmt: skip
    """Make a model profile of a transformer.

    >>> gpt = Transformer(hidden=6144, heads=64, blocks=48, seq=2048, vocabulary=51200)
    >>> round(transformer_profile(gpt, "gpt-22b").parameters_total / 1e9, 2)
    22.07
    """
    check_split(shape, 1, sequence=False)
    traced: Mapping[str, str] = {"framework": "rule", "device": "sizes", "mode": "train"}
    made = (
        f"transformer: {shape.blocks} blocks, {shape.hidden:,} wide, {shape.heads} heads, {shape.seq:,} positions"
        + (f", {shape.experts} experts, {shape.top_k} for each token" if shape.experts else "")
    )
    notes = (*NOTES, OF_EXPERTS) if shape.experts else NOTES
    return ModelProfile(
        name=name, title=title or made, ops=profile_table(shape, "bf16"), parts=empty_table("OPS"),
        sizes={"batch": batch}, traced_with=traced, parameters_total=shape.parameters,
        parameters_trainable=shape.parameters, data=data or Data(), run=run or Run(),
        optimizer={"rule": "adam", "impl": "fused"}, notes=notes, transformer=shape,
    )  # fmt: skip


def load_recipe(path: Path) -> ModelProfile:
    """Read a recipe."""
    document = load_document(path)
    if document.content.get("schema") == models.SCHEMA:
        do = f"Estimate it: fomkit estimate {quote(str(path))} --target MACHINE"
        raise document.error(("schema",), f"is a model's profile already. {do}, or give what it was made from.")
    check_schema(document, SCHEMA)
    record = check_record(document, RecipeRecord)
    shape = Transformer(**record.transformer.model_dump())
    if shape.hidden % shape.heads:
        where = document.where(("transformer", "heads"))
        raise FomkitError(where, f"heads {shape.heads} do not divide hidden {shape.hidden}. Choose a divisor.")
    return transformer_profile(
        shape, record.name, title=record.title, batch=record.batch, data=Data(train_samples=record.train_samples),
        run=Run(epochs=record.epochs),
    )  # fmt: skip
