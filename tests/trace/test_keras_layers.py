"""Ops of Keras graphs that have rules of their own, and the table of layers."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from traced_work import flop, numbers, row_flop

from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.model_file import framework_of_file
from fomkit.frontends.profile import profile_workload

BATCH = 4
ROOMS = ("fomkit/frontends/keras/*.py", "fomkit/frontends/script/keras_*.py", "fomkit/bench/keras_*.py")


@pytest.mark.usefixtures("keras")
def test_the_examples_of_rooms_that_import_keras_run(root: Path) -> None:
    """They run only here: to collect them, every test process would have to import TensorFlow."""
    paths = [path.relative_to(root).with_suffix("") for room in ROOMS for path in sorted(root.glob(room))]
    found = [doctest.testmod(import_module(".".join(path.parts))) for path in paths if path.stem != "__init__"]
    assert sum(one.attempted for one in found) > 0
    assert not any(one.failed for one in found)


def profiled(keras: Any, inputs: Any, outputs: Any, batch: int = BATCH) -> ModelProfile:
    model = keras.Model(inputs, outputs)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return profile_workload(Workload(model, None, batch_size=batch))


@pytest.mark.parametrize(
    ("equation", "products"), [("bij,bkj->bik", [(BATCH, 5, 6, 7)]), ("bij,bkj->bijk", [(BATCH * 7, 5, 6, 1)])]
)
def test_einsum_is_a_product_of_the_letters_sizes(
    keras: Any, equation: str, products: list[tuple[int, ...]]
) -> None:
    left, right = keras.Input((5, 7)), keras.Input((6, 7))
    hidden = keras.layers.Dense(7)(left)
    profile = profiled(keras, [left, right], keras.ops.einsum(equation, hidden, right))
    rows = numbers(profile).query("op == 'Einsum' and pass_name == 'forward'")
    assert [tuple(row) for row in rows[["b", "m", "n", "k"]].to_numpy()] == products
    assert flop(numbers(profile).query("op == 'Einsum'"), "backward") == row_flop(rows.iloc[0])


def test_a_recurrent_layers_weight_that_is_used_in_parts_has_its_gradient(keras: Any) -> None:
    """With dropout of the state, Keras splits the weights by gate: their gradient is joined from four products."""
    words = keras.Input((9, 7))
    profile = profiled(keras, words, keras.layers.LSTM(6, recurrent_dropout=0.1)(words))
    rows = numbers(profile).query("kind == 'rnn'").set_index("pass_name")
    assert rows["input_size"].to_dict() == {"forward": 7, "backward_input": 0, "backward_weight": 7}
    parts = numbers(profile, "parts").query("kind == 'gemm'")
    assert flop(parts, "backward_weight") == flop(parts, "forward")


def test_a_target_has_the_shape_of_the_graph_where_a_layer_states_less(keras: Any) -> None:
    words = keras.Input((5, 7))
    profile = profiled(keras, words, keras.layers.EinsumDense("abc,cd->abd", output_shape=(None, 3))(words))
    assert not profile.unsupported
    assert numbers(profile).query("op == 'SquaredDifference' or op == 'Sub'")["numel"].tolist() == [BATCH * 5 * 3]


def test_gradients_that_are_sums_of_lists_have_their_memory(keras: Any) -> None:
    import tensorflow as tf

    scan = keras.layers.Lambda(lambda rows: tf.scan(lambda one, other: tf.tanh(one) + other, rows))
    words = keras.Input((5,))
    profile = profiled(keras, words, scan(keras.layers.Dense(6)(words)))
    assert "AddN" in set(profile.ops.query("pass_name == 'backward'")["op"])
    assert profile.order is not None
    stacks = numbers(profile).query("op == 'TensorListStack' and numel > 1")
    assert len(stacks)
    assert (stacks["read_byte"] >= stacks["write_byte"]).all()


def test_a_kernel_of_unknown_shape_is_listed(keras: Any) -> None:
    import tensorflow as tf

    def blurred(pictures: Any) -> Any:
        kernel = tf.tile(tf.ones((3, 3, 1, 1)), [1, 1, tf.shape_n([pictures])[0][-1], 1])
        return tf.nn.depthwise_conv2d(pictures, kernel, [1, 1, 1, 1], "SAME")

    pictures = keras.Input((8, 8, 3))
    profile = profiled(keras, pictures, keras.layers.Lambda(blurred)(keras.layers.Conv2D(2, 1)(pictures)))
    assert "DepthwiseConv2dNative of a shape that depends on data" in profile.unsupported


def test_a_slice_reads_what_it_takes(keras: Any) -> None:
    words = keras.Input((100, 16))
    profile = profiled(keras, words, keras.layers.Dense(16)(words)[:, 0])
    (row,) = numbers(profile).query("op == 'StridedSlice' and pass_name == 'forward'").to_dict("records")
    assert row["numel"] == BATCH * 16
    assert row["read_byte"] == row["write_byte"] + 3 * 2 * 4  # begin, end and stride of two axes


def test_an_update_in_place_reads_and_writes_its_variable(keras: Any) -> None:
    words = keras.Input((12,))
    model = keras.Model(words, keras.layers.Dense(5, use_bias=False)(words))
    model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0), "mse")
    rows = profile_workload(Workload(model, None, batch_size=BATCH)).ops.query("op == 'AssignSubVariableOp'")
    assert rows[["numel", "read_byte", "write_byte"]].to_numpy().tolist() == [[60, 2 * 4 * 60, 4 * 60]]


def test_the_gradient_of_a_lookup_is_no_product_of_its_table(keras: Any) -> None:
    words = keras.Input((7,), dtype="int32")
    hidden = keras.layers.Flatten()(keras.layers.Embedding(50, 6)(words))
    rows = profiled(keras, words, keras.layers.Dense(3)(hidden)).ops.query("kind == 'gemm'")
    assert rows["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]


def test_fused_normalisation_is_a_row_forward_and_back(keras: Any) -> None:
    class Fused(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale, self.shift = (self.add_weight(shape=(shape[-1],)) for _ in range(2))

        def call(self, values: Any) -> Any:
            import tensorflow as tf

            return tf.compat.v1.nn.fused_batch_norm(values, self.scale + 0.0, self.shift + 0.0)[0]

    pictures = keras.Input((6, 5, 3))
    profile = profiled(keras, pictures, Fused()(keras.layers.Conv2D(8, 1)(pictures)))
    rows = numbers(profile).query("kind == 'norm'")
    assert rows["op"].tolist() == ["FusedBatchNormV3", "FusedBatchNormGradV3"]
    assert rows["pass_name"].tolist() == ["forward", "backward"]
    assert rows["numel"].tolist() == [BATCH * 6 * 5 * 8] * 2
    assert rows["row"].tolist() == [BATCH * 6 * 5] * 2


def test_attention_is_one_row_with_its_parts(keras: Any) -> None:
    words, attend = keras.Input((9, 12)), keras.layers.MultiHeadAttention(3, 4, name="attend")
    hidden = keras.layers.Dense(12)(words)
    profile = profiled(keras, words, attend(hidden, hidden, use_causal_mask=True))
    rows = numbers(profile).query("kind == 'attention'")
    assert rows["pass_name"].tolist() == ["forward", "backward"]
    assert set(rows["module"]) == {"attend"}
    for place, row in rows.iterrows():
        assert (row["heads"], row["q_len"], row["kv_len"], row["head_dim"], row["causal"]) == (3, 9, 9, 4, 1)
        parts = numbers(profile, "parts").query(f"of == {place}")
        assert {"gemm", "pointwise"} <= set(parts["kind"])
        assert flop(parts, "forward", "backward", kind="gemm") == row_flop(row)


def test_layers_are_counted_with_what_they_own_and_make(keras: Any) -> None:
    layers = keras.layers
    pictures = keras.Input((8, 8, 3))
    hidden = layers.Conv2D(6, 3, padding="same", name="first")(pictures)
    hidden = layers.ReLU(name="act")(layers.BatchNormalization(name="norm")(hidden))
    shared = layers.Conv2D(6, 1, use_bias=False, name="shared")
    hidden = shared(shared(hidden)) + hidden
    hidden = layers.Dropout(0.5, name="drop")(layers.Flatten(name="flat")(hidden))
    table = profiled(keras, pictures, layers.Dense(2, name="last")(hidden)).layers
    assert table is not None
    found = table[["layer", "module", "acts"]].to_numpy().tolist()
    assert found == [
        ["input", "", "input"], ["conv", "first", "always"], ["batch_norm", "norm", "always"],
        ["relu", "act", "always"], ["conv", "shared", "always"], ["add", "", "always"],
        ["flatten", "flat", "never"], ["dropout", "drop", "training"], ["linear", "last", "always"],
    ]  # fmt: skip
    by_name = table.set_index("module")
    assert by_name["parameters"][["first", "norm", "shared", "last"]].tolist() == [168, 12, 36, 770]
    assert by_name["bias"][["first", "last"]].tolist() == [6, 2]
    assert by_name["count"]["shared"] == 2
    assert by_name["readers"]["act"] == 2
    assert by_name["output_numel"]["last"] == "2*batch"


def test_a_package_beside_the_file_tells_the_framework(tmp_path: Path, file_of: Callable[..., Path]) -> None:
    package = tmp_path / "networks"
    package.mkdir()
    (package / "__init__.py").write_text("from .small import model\n", encoding="utf-8")
    (package / "small.py").write_text("from keras import layers\n", encoding="utf-8")
    assert framework_of_file(file_of("from networks import model\n")) == "tensorflow"


def test_layers_that_read_text_are_named_and_left_out(keras: Any) -> None:
    """Its words per text are known to the layer only; without them nothing behind it has a size."""
    words = keras.layers.TextVectorization(vocabulary=["good", "bad"], output_sequence_length=16)
    head = [keras.layers.Embedding(4, 32), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((1,), dtype="string"), words, *head])
    model.compile("sgd", "mse")
    profile = profile_workload(Workload(model, None, batch_size=8))
    assert not profile.unsupported
    assert flop(numbers(profile), "forward", kind="gemm") == 2 * 8 * 16 * 32 * 2
    assert any(note == f"left out, since text is read on the host: {words.name}" for note in profile.notes)
