"""One step by the Keras frontend: the lecture's table, sizes, passes, updates, and what it cannot count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traced_work import flop, numbers

import fomkit
from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile, Workload
from fomkit.frontends.profile import profile_file, profile_workload

WIDTHS = (29532, 1000, 500, 100, 50)
P1B3 = """
'''P1B3 in Keras.'''
import keras

layers = [keras.Input((29532,))]
for width in (1000, 500, 100, 50):
    layers += [keras.layers.Dense(width, activation="relu"), keras.layers.Dropout(0.1)]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(0.001), loss="mse")
batch_size, train_samples, epochs = 100, 800_121, 20
"""


def small(
    keras: Any, layers: list[Any], shape: tuple[int, ...] = (12,), loss: str = "mse", **compiled: Any
) -> Any:
    model = keras.Sequential([keras.Input(shape), *layers])
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": loss, **compiled})
    return model


def profiled(keras: Any, layers: list[Any], shape: tuple[int, ...] = (12,), **compiled: Any) -> ModelProfile:
    return profile_workload(Workload(small(keras, layers, shape, **compiled), None, batch_size=4))


def as_printed(row: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the shapes of a product's factors as stored in memory, as tfprof prints them."""
    left = (row["k"], row["m"]) if row["trans_a"] else (row["m"], row["k"])
    right = (row["n"], row["k"]) if row["trans_b"] else (row["k"], row["n"])
    return left, right


@pytest.mark.usefixtures("keras", "started_anew")
def test_the_lectures_table_of_p1b3_comes_out(file_of: Callable[[str], Path]) -> None:
    profile = profile_file(file_of(P1B3), name="p1b3")
    assert profile.title == "P1B3 in Keras"
    assert profile.parameters_total == profile.parameters_trainable == 30_088_701
    assert (profile.data.train_samples, profile.run.epochs, profile.batch) == (800_121, 20, 100)
    assert not profile.unsupported
    rows = numbers(profile)
    products = rows[rows["kind"] == "gemm"]
    assert products["count"].sum() == 14
    assert len({as_printed(row) for _, row in products.iterrows()}) == 13
    written = sum(row["m"] * row["n"] * 4 * row["count"] for _, row in products.iterrows())
    assert written == 121_668_600
    assert flop(rows, "forward", kind="gemm") == 6_017_410_000
    assert flop(rows, "forward", "backward", kind="gemm") == 12_145_830_000
    never_run = ((100, 1000), (29532, 1000))
    assert never_run not in {as_printed(row) for _, row in products.iterrows()}
    assert products.query("module == 'dense'")["pass_name"].tolist() == ["forward", "backward_weight"]
    assert profile.optimizer == {"rule": "sgd", "impl": "per_tensor"}
    update = rows[rows["kind"] == "optimizer"].iloc[0]
    assert (update["numel"], update["tensors"]) == (30_088_701, 10)


def test_a_function_of_the_inputs_names_more_sizes(keras: Any) -> None:
    import numpy as np

    words = keras.Input((None,), dtype="int32")
    hidden = keras.layers.LSTM(8)(keras.layers.Embedding(50, 6)(words))
    model = keras.Model(words, keras.layers.Dense(3)(hidden))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    profile = profile_workload(Workload(model, lambda batch, seq=9: np.zeros((batch, seq), "int32"), batch_size=4))
    rnn = profile.ops[profile.ops["kind"] == "rnn"]
    assert set(rnn["steps"]) == {"seq"}
    assert set(rnn["batch"]) == {"batch"}
    assert set(profile.sizes) == {"batch", "seq"}
    assert not profile.unsupported


def test_inference_is_the_forward_pass_alone(keras: Any) -> None:
    model = small(keras, [keras.layers.Dense(5), keras.layers.Dropout(0.5), keras.layers.BatchNormalization()])
    profile = profile_workload(Workload(model, None, batch_size=4), mode="infer")
    assert set(profile.ops["pass_name"]) == {"forward"}
    assert "dropout" not in set(profile.ops["module"])


def test_what_is_traced_changes_no_weight(keras: Any) -> None:
    model = small(keras, [keras.layers.Dense(5), keras.layers.BatchNormalization()], optimizer="adam")
    before = [weight.copy() for weight in model.get_weights()]
    profile_workload(Workload(model, None, batch_size=4))
    assert all((one == other).all() for one, other in zip(before, model.get_weights(), strict=True))


def test_a_model_that_is_not_compiled_takes_the_files_own_loss_and_optimizer(keras: Any) -> None:
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(5), keras.layers.Dense(2)])
    loss = lambda output, inputs: keras.ops.mean(output**2) + 0 * keras.ops.mean(inputs)  # noqa: E731
    optimizer = keras.optimizers.Adam(0.1)
    profile = profile_workload(Workload(model, None, loss=loss, optimizer=optimizer, batch_size=4))
    rows = numbers(profile)
    assert len(rows[rows["kind"] == "gemm"]) == 5
    assert profile.optimizer["rule"] == "adam"


@pytest.mark.parametrize(
    ("name", "switches", "rule"),
    [("SGD", {"momentum": 0.9}, "momentum"), ("SGD", {"momentum": 0.9, "nesterov": True}, "nesterov"),
     ("Adam", {"amsgrad": True}, "adam_amsgrad"), ("AdamW", {}, "adamw"), ("RMSprop", {}, "rmsprop"),
     ("Adagrad", {}, "adagrad")],
)  # fmt: skip
def test_an_optimizer_is_one_row_by_its_rule(keras: Any, name: str, switches: Any, rule: str) -> None:
    optimizer = getattr(keras.optimizers, name)(0.1, **switches)
    profile = profiled(keras, [keras.layers.Dense(5)], optimizer=optimizer)
    update = profile.ops[profile.ops["pass_name"] == "update"]
    assert update["rule"].tolist() == [rule]
    assert update["numel"].tolist() == [65]


def test_an_update_with_more_than_its_rule_is_counted_op_by_op(keras: Any) -> None:
    profile = profiled(keras, [keras.layers.Dense(5)], optimizer=keras.optimizers.SGD(0.1, clipnorm=1.0))
    update = profile.ops[profile.ops["pass_name"] == "update"]
    assert {"Mul", "AssignSubVariableOp"} <= set(update["op"])
    assert "optimizer" not in set(update["kind"])
    assert any("one by one" in note for note in profile.notes)


def test_gradients_that_accumulate_share_an_update(keras: Any) -> None:
    """In one of four steps the optimizer updates two variables, in the others it adds to their sums."""
    adam = keras.optimizers.Adam(0.1, gradient_accumulation_steps=4)
    profile = profiled(keras, [keras.layers.Dense(5)], optimizer=adam)
    counts = profile.ops.query("pass_name == 'update'").groupby("op")["count"].sum()
    assert (counts["AssignSubVariableOp"], counts["Sqrt"]) == (2 / 4, 2 * 2 / 4)
    assert any("after each 4 batches" in note for note in profile.notes)
    assert not any("branches" in note for note in profile.notes)


def test_an_update_counted_op_by_op_keeps_its_state_in_memory(keras: Any) -> None:
    layers = [keras.layers.Dense(5), keras.layers.BatchNormalization()]
    clipped = profiled(keras, layers, optimizer=keras.optimizers.Adam(0.1, clipnorm=1.0))
    plain = profiled(keras, layers, optimizer=keras.optimizers.Adam(0.1))
    states = [numbers(one, "order").query("role == 'state'")["output_byte"].sum() for one in (clipped, plain)]
    assert states[0] == states[1] == 2 * 4 * plain.parameters_trainable


def test_frozen_layers_have_no_weight_gradient(keras: Any) -> None:
    frozen = keras.layers.Dense(7, trainable=False)
    rows = numbers(profiled(keras, [frozen, keras.layers.Dense(5)]))
    products = rows[rows["kind"] == "gemm"]
    assert products["pass_name"].tolist() == ["forward", "forward", "backward_weight"]


def test_an_op_without_a_rule_is_listed_with_its_count(keras: Any) -> None:
    class Root(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            import tensorflow as tf

            root = tf.linalg.sqrtm(tf.linalg.diag(values))
            return tf.math.bessel_i0(values) + tf.stop_gradient(tf.reduce_sum(root, -1))

    profile = profiled(keras, [keras.layers.Dense(5), Root(), Root()])
    assert profile.unsupported == ("MatrixSquareRoot ×2",)
    # Their names suggest no more work than their traffic.
    assert profile.bounded == ("BesselI0", "BesselI1")
    bessel = numbers(profile).query("op == 'BesselI0'")
    assert bessel["kind"].tolist() == ["other", "other"]
    assert (bessel["read_byte"] == bessel["write_byte"]).all()
    assert len(profile.ops[profile.ops["kind"] == "gemm"]) == 3 - 1


def test_control_flow_that_depends_on_data_is_listed(keras: Any) -> None:
    class Settling(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            import tensorflow as tf

            step = lambda one: (one * 0.5,)  # noqa: E731
            (settled,) = tf.while_loop(lambda one: tf.reduce_max(one) > 1.0, step, (values,))
            return tf.cond(tf.reduce_sum(settled) > 0, lambda: settled, lambda: -settled)

    profile = profiled(keras, [keras.layers.Dense(5), Settling()])
    told = " ".join(profile.unsupported)
    assert "a loop whose number of iterations depends on data" in told
    assert "branch" not in told


@pytest.mark.usefixtures("keras")
def test_only_ops_of_little_arithmetic_are_priced_by_their_traffic() -> None:
    from fomkit.frontends.keras.ops import has_bound

    light = ("Polygamma", "Lgamma", "IgammaGradA", "Igammac", "BesselI0", "HSVToRGB", "SqrtGrad", "QuantizeV2")
    heavy = ("XlaDot", "XlaDotV2", "XlaCallModule", "TridiagonalMatMul", "Dilation2D", "Lu", "Qr", "Eig",
             "SelfAdjointEigV2", "MatrixInverse", "CudnnRNNV3", "UniformQuantizedDot", "CTCLoss")  # fmt: skip
    assert [name for name in light if not has_bound(name)] == []
    assert [name for name in heavy if has_bound(name)] == []


def test_a_branch_that_depends_on_data_counts_with_its_longest_side(keras: Any) -> None:
    class Branching(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

        def call(self, values: Any) -> Any:
            product = lambda: keras.ops.matmul(values, self.kernel)  # noqa: E731
            return keras.ops.cond(keras.ops.sum(values) > 0, lambda: values, product)

    profile = profiled(keras, [keras.layers.Dense(5), Branching()])
    assert not profile.unsupported
    products = profile.ops.query("kind == 'gemm' and module == 'branching'")
    assert products["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]
    assert any(note.startswith("branches that depend on data: 2;") for note in profile.notes)


def test_a_branch_and_its_gradient_take_the_same_side(keras: Any) -> None:
    """One side runs many cheap ops, the other one product, whose gradient is the longer one."""

    class Choosing(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

        def call(self, values: Any) -> Any:
            product = lambda: keras.ops.matmul(values, self.kernel)  # noqa: E731
            return keras.ops.cond(keras.ops.sum(values) > 0, lambda: _rounded(keras, values), product)

    profile = profiled(keras, [keras.layers.Dense(5), Choosing()])
    products = profile.ops.query("kind == 'gemm' and module == 'choosing'")
    assert products["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]


def _rounded(keras: Any, values: Any) -> Any:
    for _ in range(20):
        values = keras.ops.floor(values)
    return values


def test_a_long_chain_of_branches_is_walked_in_time(keras: Any) -> None:
    """Each branch is inside a side of the one before; a loop's trips count when sides are compared."""
    import tensorflow as tf

    from fomkit.frontends.keras import calls

    def nested(values: Any, depth: int) -> Any:
        if not depth:
            return values
        step = lambda: nested(tf.math.tanh(values), depth - 1)  # noqa: E731
        return tf.cond(tf.reduce_sum(values) > depth, step, lambda: nested(values, depth - 1))

    def looped(values: Any) -> Any:
        return tf.while_loop(lambda at, _: at < 50, lambda at, one: (at + 1, tf.sin(one)), (0, values))[1]

    @tf.function
    def step(values: Any) -> Any:
        values = nested(values, 7)
        return tf.cond(tf.reduce_sum(values) > 0, lambda: looped(values), lambda: _rounded(keras, values))

    graph = step.get_concrete_function(tf.TensorSpec((4, 5))).graph
    walked: list[Any] = []
    given = calls.Place.sides
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(calls.Place, "sides", lambda place, branch: walked.append(branch) or given(place, branch))
        ran = list(calls.walk(calls.Place(graph), [0]))
    assert sum(one.count for one in ran if one.op.type == "Sin") == 50
    assert sum(one.count for one in ran if one.op.type == "Tanh") == 7
    assert len(walked) < 1000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorFlow has one under Python 3.13
def test_a_function_of_the_graph_is_traced_for_the_batch_at_hand(keras: Any) -> None:
    import tensorflow as tf

    class Cubed(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

        @tf.function
        def call(self, values: Any) -> Any:
            for _ in tf.range(3):
                values = tf.matmul(values, self.kernel)
            return values

    rows = numbers(profiled(keras, [keras.layers.Dense(5), Cubed()]))
    products = rows.query("kind == 'gemm' and count == 3")
    assert products["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]


def test_a_step_is_traced_once_for_each_size(keras: Any) -> None:
    calls = []

    class Noted(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            calls.append(values.shape[0])
            return values

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    model = small(keras, [keras.layers.Dense(5), Noted()])
    calls.clear()
    profile_workload(Workload(model, None, batch_size=4))
    assert calls == [4, 8, 12]


def test_gradients_of_many_readers_are_one_sum_at_every_batch(keras: Any) -> None:
    """TensorFlow adds five of them early if these are larger than 128 MiB, here from batch 8 on."""
    numbers_in = keras.Input((3,))
    hidden = keras.ops.repeat(keras.layers.Dense(1)(numbers_in), 1_500_000, axis=1)
    read = [keras.ops.mean(one(hidden), 1) for one in (keras.ops.relu, keras.ops.tanh, keras.ops.exp)]
    more = [keras.ops.mean(one(hidden), 1) for one in (keras.ops.abs, keras.ops.sin, keras.ops.cos)]
    model = keras.Model(numbers_in, sum(read + more))
    model.compile("sgd", "mse")
    profile = profile_workload(Workload(model, None, batch_size=4))
    sums = profile.ops.query("op == 'AddN' and inputs == 6")
    assert sums["numel"].tolist() == ["1500000*batch"]
    assert not [note for note in profile.notes if "batch 4 only" in note]


def test_an_error_of_keras_is_not_taken_for_one_of_fomkit(keras: Any) -> None:
    """Keras states the wrong width of a gated activation until it runs."""
    layers = [keras.layers.Dense(16), keras.layers.Activation("glu"), keras.layers.Dense(3)]
    with pytest.raises(FomkitError, match="incompatible with the layer") as told:
        profiled(keras, layers)
    assert "in fomkit itself" not in str(told.value)


def test_an_error_inside_keras_attention_is_not_taken_for_one_of_fomkit(keras: Any) -> None:
    class Masked(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.layers.MultiHeadAttention(2, 4)

        def build(self, shape: Any) -> None:
            self.inner.build(shape, shape)
            self.built = True

        def call(self, values: Any) -> Any:
            return self.inner(values, values, attention_mask=keras.ops.ones((3, 7, 9)))

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    with pytest.raises(FomkitError, match="Dimensions must be equal") as told:
        profiled(keras, [Masked()], (5, 8))
    assert "in fomkit itself" not in str(told.value)


def test_a_training_step_gets_the_batch_as_it_is(keras: Any) -> None:
    import numpy as np
    import tensorflow as tf

    class Adversarial(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.made, self.judge = (keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)]) for _ in "ab")
            self.own = keras.optimizers.Adam()

        def train_step(self, batch: Any) -> Any:
            real, noise, other = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.judge(real + other) - self.judge(self.made(noise)))
            variables = self.judge.trainable_variables
            self.own.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    model = Adversarial()
    model.compile()
    found = fomkit.profile(model, inputs=lambda batch=4: tuple(np.zeros((batch, 4), "float32") for _ in "abc"))
    passes = found.ops.query("kind == 'gemm'").groupby("pass_name")["count"].sum()
    assert passes["forward"] == 3
    assert not found.optimizer
    assert "update" in set(found.ops["pass_name"])
    assert any("calls itself are counted op by op" in note for note in found.notes)


def test_a_subclass_that_build_left_without_weights_is_called(keras: Any) -> None:
    class Two(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = keras.layers.Dense(16), keras.layers.Dense(1)

        def call(self, values: Any) -> Any:
            return self.other(self.one(values))

    model = Two()
    with pytest.warns(UserWarning, match="unbuilt state"):
        model.build((None, 8))
    model.compile("sgd", "mse")
    found = fomkit.profile(
        model, inputs=lambda batch=4: (keras.ops.zeros((batch, 8)), keras.ops.zeros((batch, 1)))
    )
    assert found.parameters_trainable == 8 * 16 + 16 + 16 + 1


def test_a_loop_is_counted_by_its_trips(keras: Any) -> None:
    class Powers(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

        def call(self, values: Any) -> Any:
            import tensorflow as tf

            step = lambda at, one: (at + 2, tf.matmul(one, self.kernel))  # noqa: E731
            return tf.while_loop(lambda at, _: at < 7, step, (0, values))[1]

    rows = numbers(profiled(keras, [keras.layers.Dense(5), Powers()]))
    products = rows[(rows["kind"] == "gemm") & (rows["module"] == "powers")]
    assert products["count"].tolist() == [4, 4, 4]
    assert products["pass_name"].tolist() == ["forward", "backward_input", "backward_weight"]


# --- what it says of files that lack something ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import keras\nmodel = 3", "'model' is of type int. A keras.Model was expected"),
        ("import keras", "'model' is missing"),
        ("import keras\nloss_fn = 3", "the loss is not a function. Give one of (output, inputs)"),
        ("import keras\nmodel = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])\n",
         "'batch_size' is missing"),
        ("import keras\nbatch_size = 2\n"
         "model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(2)])\n",
         "more than the batch is open"),
        ("import keras\nraise SystemExit(3)", "ends the program by sys.exit(3)"),
    ],
    ids=["no_model", "missing", "loss", "batch", "open", "exit"],
)  # fmt: skip
@pytest.mark.usefixtures("keras")
def test_a_wrong_file_is_told_in_one_message(file_of: Callable[[str], Path], text: str, told: str) -> None:
    with pytest.raises(FomkitError) as error:
        profile_file(file_of(text))
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (lambda: 3, "inputs takes no argument"),
        (lambda batch: [1.0] * batch, "'inputs' holds a value of type float"),
    ],
)
def test_inputs_that_are_no_tensors_are_told(keras: Any, inputs: Any, told: str) -> None:
    with pytest.raises(FomkitError, match=told):
        profile_workload(Workload(small(keras, [keras.layers.Dense(5)]), inputs, batch_size=4))


def test_a_dataset_is_a_batch_with_weights_of_its_samples(keras: Any) -> None:
    import tensorflow as tf

    tensors = tf.zeros((8, 12)), tf.zeros((8, 5)), tf.ones(8)
    inputs = tf.data.Dataset.from_tensor_slices(tensors).batch(4)
    profile = profile_workload(Workload(small(keras, [keras.layers.Dense(5)]), inputs, batch_size=4))
    weighted = profile.ops.query("op == 'Mul' and pass_name == 'forward' and numel == 'batch'")
    assert weighted["read_byte"].tolist() == ["8*batch"]


def test_the_framework_is_found_by_what_a_file_and_its_neighbours_import(file_of: Callable[..., Path]) -> None:
    from fomkit.frontends.model_file import framework_of_file

    file_of("import keras\n", "network.py")
    assert framework_of_file(file_of("from network import model\n")) == "tensorflow"
    assert framework_of_file(file_of("import torch\nfrom network2 import model\n")) == "torch"
    assert framework_of_file(file_of("this is no Python")) == "torch"


def test_without_tensorflow_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, file_of: Callable[[str], Path]
) -> None:
    monkeypatch.setattr("fomkit.frontends.model_file.find_spec", lambda _: None)
    with pytest.raises(FomkitError, match=r'needs TensorFlow, which is not installed. Run: pip install "tens'):
        profile_file(file_of("import keras\n"))
