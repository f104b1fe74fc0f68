"""Unchanged Keras programs: Model.fit in the child process, and other code of a program around it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from extras import needs
from traced_work import flop, numbers, products

from fomkit.core.errors import FomkitError
from fomkit.core.model import ModelProfile
from fomkit.frontends.profile import profile_file, profile_script
from fomkit.frontends.script import loops

pytestmark = needs("tensorflow", reason="Keras's tests need TensorFlow: pip install '.[tensorflow]'")

START = """
import keras
import numpy as np
layers = keras.layers
def network(optimizer="sgd", **compiled):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(3)])
    model.compile(optimizer, "mse", **compiled)
    return model
model = network()
x, y = np.random.rand(100, 8), np.random.rand(100, 3)
"""


class Stopped(BaseException):
    pass


@pytest.fixture(autouse=True)
def at_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Await all steps, however busy the machine is."""
    monkeypatch.setattr("fomkit.frontends.script.keras_watch.MAX_STEPS_S", float("inf"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keras: Any) -> Callable[..., ModelProfile]:
    """Run the text of a program, as the child process does, until a step is taken or it ends."""
    assert keras.backend.backend() == "tensorflow"
    from fomkit.frontends.script.keras_draft import draft_script
    from fomkit.frontends.script.keras_watch import FitWatch

    def run_text(text: str) -> ModelProfile:
        path = tmp_path / "train.py"
        monkeypatch.setattr(loops, "is_user_file", lambda name: name == str(path))
        path.write_text(START + text, encoding="utf-8")

        def stop(_: Any) -> None:
            raise Stopped

        watch = FitWatch(stop)
        try:
            with watch.watch(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Keras's remarks on how a program trains
                exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})
        except Stopped:
            pass
        assert watch.captured is not None
        return draft_script(watch.captured, {"name": "train", "where": str(path), "path": str(path)}).profile()

    return run_text


def told(profile: ModelProfile, text: str) -> bool:
    return any(text in note for note in profile.notes)


def facts(profile: ModelProfile) -> tuple[Any, ...]:
    data = profile.data
    return profile.batch, data.train_samples, data.validation_samples, data.last_batch, profile.run.epochs


@pytest.mark.usefixtures("keras")
def test_a_fit_program_gives_the_step_of_its_model_file(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = root / "tests" / "data" / "scripts" / "flowers"
    found, model = profile_script(source / "train.py", ["--batch-size", "16"]), profile_file(source / "model.py")
    assert products(found) == products(model)
    for pass_name in ("forward", "backward"):
        assert flop(numbers(found), pass_name) == flop(numbers(model), pass_name) > 1e6
    assert facts(found) == facts(model) == (16, 250, 70, "keep", 12)
    assert (found.parameters_total, found.optimizer) == (model.parameters_total, model.optimizer)
    assert found.optimizer["rule"] == "momentum"
    assert not found.unsupported
    assert found.layers is not None
    pd.testing.assert_frame_equal(found.layers, model.layers)
    assert told(found, "EarlyStopping may end the run")
    assert not told(found, "partial")
    assert numbers(found, batch=32)["numel"].sum() > 1.9 * numbers(found, batch=16)["numel"].sum()
    assert not list(tmp_path.iterdir()), "the program was not stopped"
    assert not list(source.rglob("__pycache__"))


FITS = {
    "arrays": ("model.fit(x, y, epochs=4, validation_split=0.2, verbose=0)", (32, 80, 20, "keep", 4)),
    "validation arrays": (
        "model.fit(x, y, batch_size=12, initial_epoch=1, epochs=4, validation_data=(x[:30], y[:30]), verbose=0)",
        (12, 100, 30, "keep", 3),
    ),
    "weights": (
        "model.fit(x, y, sample_weight=np.ones(100), batch_size=20, verbose=0)", (20, 100, 0, "keep", 1),
    ),
    "dataset": (
        "import tensorflow as tf\ndata = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(9)\n"
        "model.fit(data.batch(15, drop_remainder=True).prefetch(2), validation_data=data.batch(40), verbose=0)",
        (15, 100, 100, "drop", 1),
    ),
    "repeated dataset": (
        "import tensorflow as tf\ndata = tf.data.Dataset.from_tensor_slices((x, y)).batch(10).repeat()\n"
        "model.fit(data, steps_per_epoch=7, epochs=2, validation_data=data, validation_steps=3, verbose=0)",
        (10, 70, 30, "drop", 2),
    ),
    "sequence": (
        "class Batches(keras.utils.PyDataset):\n    __len__ = lambda self: 7\n"
        "    __getitem__ = lambda self, place: (x[:12], y[:12])\n"
        "model.fit(Batches(), validation_data=Batches(), epochs=3, verbose=0)", (12, 84, 84, "drop", 3),
    ),
    "generator": (
        "def batches():\n    while True:\n        yield x[:9], y[:9]\n"
        "model.fit(batches(), shuffle=False, steps_per_epoch=11, verbose=0)", (9, 99, 0, "drop", 1),
    ),
    "train_on_batch": (
        "for _ in range(9):\n    model.train_on_batch(x[:20], y[:20])", (20, 180, None, "drop", 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FITS.values(), ids=FITS)
def test_batch_samples_and_epochs_are_those_of_fit(
    run: Callable[..., ModelProfile], text: str, expected: tuple[Any, ...]
) -> None:
    profile = run(text)
    assert facts(profile) == expected
    assert not profile.unsupported
    forward = numbers(profile).query("kind == 'gemm' and pass_name == 'forward'")
    assert forward[["m", "n", "k"]].to_numpy().tolist() == [[expected[0], 16, 8], [expected[0], 3, 16]]


def test_the_first_fit_that_trains_long_enough_is_taken(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
model.fit(x, y, steps_per_epoch=1, verbose=0)
model.fit(x, y, batch_size=10, verbose=0)
model.fit(x, y, batch_size=50, verbose=0)
""")
    assert profile.batch == 10
    assert told(profile, "Model.fit at train.py:13, its step 3")
    assert told(profile, "partial: the program trains elsewhere too, which is left out: Model.fit at train.py:12")
    assert told(profile, "train.py calls fit at line 14 too, which is not part")


def test_a_step_of_the_users_own_is_the_one_that_is_read(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
import tensorflow as tf
class Twice(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(5), layers.Dense(8)
    def call(self, values):
        return self.decoder(self.encoder(values))
    def train_step(self, data):
        with tf.GradientTape() as tape:
            once = self.decoder(self.encoder(data))
            loss = tf.reduce_mean((self.decoder(self.encoder(once)) - data) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
model = Twice()
model.compile(keras.optimizers.Adam(0.1))
model.fit(x, batch_size=25, verbose=0)
""")
    rows = numbers(profile).query("kind == 'gemm'")
    by_pass = rows.groupby("pass_name")["count"].sum().to_dict()
    assert by_pass == {"forward": 4, "backward_input": 3, "backward_weight": 4}
    assert profile.optimizer["rule"] == "adam"
    assert profile.batch == 25


TAPE = """
import tensorflow as tf
optimizer = keras.optimizers.Adam(0.1)
x = x.astype("float32")
@tf.function
def step(values, training):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(values, training=training) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
for first in range(0, 100, 25):
    step(tf.constant(x[first:first + 25]), training=True)
"""


def test_a_step_of_a_loop_of_its_own_is_followed(run: Callable[..., ModelProfile]) -> None:
    profile = run(TAPE)
    assert facts(profile) == (25, 100, None, "drop", 1)
    assert told(profile, "the run is one epoch of 4 steps: the rounds of the loop at train.py:22")
    assert products(profile) == products(run("model.fit(x, y, batch_size=25, verbose=0)"))
    assert (profile.optimizer["rule"], profile.parameters_total) == ("adam", 8 * 16 + 16 + 16 * 3 + 3)
    assert profile.order is not None
    assert told(profile, "taken from the running program: step at train.py:23, its step 3")
    more = TAPE.replace("trainable_variables)", "trainable_variables + [other])")
    with pytest.raises(FomkitError, match="step updates weights that no single"):
        run(f"other = keras.Variable(1.0)\n{more}")


def test_a_loop_of_unknown_length_leaves_the_run_unknown(run: Callable[..., ModelProfile]) -> None:
    profile = run(TAPE.replace("in range(0, 100, 25)", "in map(int, [0, 25, 50, 75])"))
    assert facts(profile) == (25, None, None, "keep", None)
    assert told(profile, "samples and epochs are unknown: step is called in a loop of the program's own")


def test_a_round_of_a_plain_loop_is_a_step(run: Callable[..., ModelProfile]) -> None:
    """Its code reads values, breaks and returns."""
    profile = run(f"""{TAPE.partition("@tf.function")[0]}
def train(total):
    data = tf.data.Dataset.from_tensor_slices(x).batch(20)
    for epoch in range(7):
        for place, values in enumerate(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(values, training=True) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            total += float(loss)
            print(f"{{loss.numpy():.3f}} of {{total:.3f}}")
            if place > 50:
                break
            if place > 60:
                return
train(0.0)
""")
    assert facts(profile) == (20, 100, None, "keep", 7)
    assert products(profile) == products(run("model.fit(x, y, batch_size=20, verbose=0)"))
    assert profile.optimizer["rule"] == "adam"


def test_a_round_may_decide_by_its_results_and_fail_after_its_update(run: Callable[..., ModelProfile]) -> None:
    profile = run(f"""{TAPE.partition("@tf.function")[0]}
best = 9e9
for place in range(900):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x[:50]) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    if loss < best:
        best = loss * model(x)
    best, text = loss, f"{{model.trainable_variables[0].numpy()}}"
""")
    assert facts(profile)[:2] == (50, 900 * 50)
    assert flop(numbers(profile), "forward") == 2 * 50 * (8 * 16 + 16 * 3)
    assert told(profile, "a truth value that a step reads from a result is False")
    assert told(profile, "what follows the update reads values")


@pytest.mark.parametrize("second", ["train(other)", "{}"])
def test_a_short_loop_beside_another_update_is_a_part_of_the_step(
    run: Callable[..., ModelProfile], second: str
) -> None:
    """Of two networks, as a generator and its judge, one trains in the inner loop."""
    text = """    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(tf.constant(rows())) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
"""
    profile = run(f"""{TAPE.partition("@tf.function")[0]}
values, other, second = x[:50], network(), keras.optimizers.SGD(0.1)
def rows():
    return [*values]
def train(model, optimizer=second):
{text}
for epoch in range(900):
    for part in range(1):
        {text.replace(chr(10) + "    ", chr(10) + "        ").strip()}
    {second}
""")
    assert flop(numbers(profile), "forward") == (1 + bool("other" in second)) * 2 * 50 * (8 * 16 + 16 * 3)
    assert facts(profile) == (50, 900 * 50, None, "drop", 1)


@pytest.mark.parametrize("warm", ["", "once(x[:25])\nfor step in range(8): once(x[:50])"])
def test_an_update_without_a_loop_is_the_run(run: Callable[..., ModelProfile], warm: str) -> None:
    profile = run(f"""{TAPE.partition("@tf.function")[0]}
def once(values):
    \"\"\"Train.\"\"\"
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(values, training=True) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
{warm or "once(x)"}
""")
    batch = 50 if warm else 100
    assert facts(profile) == (batch, 8 * batch if warm else batch, None, "drop", 1)
    assert flop(numbers(profile), "forward") == 2 * batch * (8 * 16 + 16 * 3)
    assert told(profile, "the run is one epoch of 1 step: as no loop is around it") == (not warm)


def test_a_function_that_is_called_once_is_the_run(run: Callable[..., ModelProfile]) -> None:
    profile = run(TAPE.partition("for first")[0] + "step(tf.constant(x[:25]), training=True)")
    assert facts(profile) == (25, 25, None, "drop", 1)
    assert told(profile, "the run is one epoch of 1 step: as no loop is around it")


@pytest.mark.parametrize("sums", [1, 2])
def test_variables_without_keras_are_a_model(run: Callable[..., ModelProfile], sums: int) -> None:
    """Their update is what the round computes from gradients, also by a momentum; the batch is what it reads."""
    profile = run(f"""
import tensorflow as tf
w, speed, data = tf.Variable(tf.ones((8, 3))), tf.Variable(tf.zeros((8, 3))), tf.ones((50, 8))
for step in range(40):
    total = tf.zeros((8, 3))
    for part in range({sums}):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((data @ w) ** 2)
        total += tape.gradient(loss, w)
    speed.assign(0.9 * speed + total)
    w.assign_sub(0.1 * speed)
""")
    assert (profile.batch, profile.parameters_total, profile.title) == (50, 24, "Program, training step")
    assert facts(profile) == (50, 40 * 50, None, "drop", 1)
    rows = numbers(profile)
    assert rows.query("kind == 'gemm'")["count"].sum() == 2 * sums
    updates = rows.query("pass_name == 'update'").groupby("op")["count"].sum().to_dict()
    assert updates == {"AddV2": sums + 1, "Mul": 2, "AssignSubVariableOp": 1}


def test_gradients_of_the_round_before_are_no_batch(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
import tensorflow as tf
w, data = tf.Variable(tf.ones((8, 3))), tf.ones((50, 8))
for step in range(40):
    values = data[:25]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((values @ w) ** 2)
    gradient = tape.gradient(loss, w)
    w.assign_sub(0.1 * gradient)
""")
    assert profile.batch == 25


def test_a_step_by_two_optimizers_trains_the_models_of_both(run: Callable[..., ModelProfile]) -> None:
    made = "judge, second = keras.Sequential([keras.Input((3,)), layers.Dense(2)]), keras.optimizers.SGD()\n"
    text = TAPE.replace("model(values, training=training)", "judge(model(values, training=training))")
    old, new = "    gradients = tape", "    gradients, others = tape"
    text = text.replace(old, new).replace("(loss, model.trainable", "(loss, [model.trainable")
    text = text.replace("variables)\n    opt", "variables, judge.trainable_variables])\n    opt")
    profile = run(
        made + text.replace("    return", "    second.apply(others, judge.trainable_variables)\n    return")
    )
    assert profile.parameters_total == (8 * 16 + 16 + 16 * 3 + 3) + (3 * 2 + 2)
    assert told(profile, "one step updates by 2 optimizers; all but the last are counted op by op")
    assert flop(numbers(profile), "forward") == 2 * 25 * (8 * 16 + 16 * 3 + 3 * 2)
    assert profile.ops.query("op == 'AssignSubVariableOp'")["count"].sum() == 4


def test_a_step_of_two_models_has_the_weights_of_both_and_the_length_of_its_loops(
    run: Callable[..., ModelProfile],
) -> None:
    profile = run("""
import tensorflow as tf
other = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
first, second = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
data = tf.data.Dataset.from_tensor_slices(tf.zeros((95, 8))).batch(10)
@tf.function
def step(values):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(other(model(values)) ** 2)
    first.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    second.apply_gradients(zip(tape.gradient(loss, other.trainable_variables), other.trainable_variables))
for epoch in range(7):
    for values in data:
        step(values)
""")
    assert facts(profile) == (10, 95, None, "keep", 7)
    assert profile.parameters_total == 8 * 16 + 16 + 16 * 3 + 3 + 3 * 2 + 2
    assert profile.title == "Sequential and Sequential, training step"
    updates = profile.ops[profile.ops["kind"] == "optimizer"]
    assert profile.optimizer["rule"] == "adam"
    assert updates["numel"].astype(float).tolist() == [3 * 2 + 2]
    assert (profile.ops["pass_name"].eq("update") & profile.ops["op"].eq("AssignSubVariableOp")).any()
    assert told(profile, "one step updates by 2 optimizers; all but the last are counted op by op")
    assert told(profile, "7 epochs, from the loop at train.py:")


def test_several_steps_to_one_execution(run: Callable[..., ModelProfile]) -> None:
    profile = run("model = network('adam', steps_per_execution=2)\nmodel.fit(x, y, batch_size=20, verbose=0)")
    assert numbers(profile).query("kind == 'gemm'")["count"].sum() == 5
    assert told(profile, "one execution of the program makes 2 steps")


def test_control_flow_that_depends_on_data_is_listed(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
import tensorflow as tf
class Settling(layers.Layer):
    def call(self, values):
        return tf.while_loop(lambda one: tf.reduce_max(one) > 1.0, lambda one: (one * 0.5,), (values,))[0]
model = keras.Sequential([keras.Input((8,)), layers.Dense(3), Settling()])
model.compile("sgd", "mse")
model.fit(x, y, verbose=0)
""")
    assert any("a loop whose number of iterations depends on data" in one for one in profile.unsupported)


def test_the_frames_of_a_ctc_loss_are_followed_through_the_functions_of_its_loops(
    run: Callable[..., ModelProfile],
) -> None:
    """Sums over paths run forward and backward through 12 frames, with 5 labels and 6 blanks, twice."""
    profile = run("""
model = keras.Sequential([keras.Input((12, 8)), layers.Dense(7)])
model.compile("sgd", keras.losses.CTC())
model.fit(np.zeros((40, 12, 8)), np.ones((40, 5), "int32"), batch_size=4)
""")
    assert not profile.unsupported
    kept = profile.ops[profile.ops["op"] == "TensorScatterUpdate"]
    assert kept[kept["numel"].astype("str") == f"{2 * (5 + 1)}*batch"]["count"].tolist() == [2 * 12]


def test_a_step_that_needs_values_is_told_with_its_line(run: Callable[..., ModelProfile]) -> None:
    text = """
class Watchful(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)
    def call(self, values):
        return self.dense(values)
    def train_step(self, data):
        logs = super().train_step(data)
        if float(logs["loss"]) > 100:
            print("high")
        return logs
model = Watchful()
model.compile("sgd", "mse", run_eagerly=True)
model.fit(x, y, verbose=0)
"""
    with pytest.raises(
        FomkitError, match=r"train\.py:20: raises TypeError: .*traced by shapes.*run_eagerly=False"
    ):
        run(text)


def test_loss_scaling_leaves_the_rule_of_the_optimizer_inside(run: Callable[..., ModelProfile]) -> None:
    profile = run("""
model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)), "mse")
model.fit(x, y, verbose=0)
""")
    assert not profile.unsupported
    assert profile.optimizer["rule"] == "adam"
    assert told(profile, "loss scaling")


OWN_LOOP = """
optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
for _ in range(100_000):
    optimizer.apply([keras.ops.zeros_like(one) for one in model.trainable_variables])
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OWN_LOOP, "though it updates weights in a loop of its own. A program that trains by Model.fit, "
                   "train_on_batch, a step under @tf.function or a loop with a GradientTape was expected"),
        ("import sys\nsys.exit(3)", r":12: ends by sys.exit\(3\) before its first training step"),
        ("model.fit(x[:, :5], y, verbose=0)", r":11: raises ValueError: .*incompatible.*before its first"),
    ],
    ids=["own loop", "sys.exit", "raises"],
)  # fmt: skip
@pytest.mark.usefixtures("keras")
def test_one_clear_error(file_of: Callable[..., Path], text: str, expected: str) -> None:
    path = file_of(START + text, "train.py")
    with pytest.raises(FomkitError) as caught:
        profile_script(path, time_limit_s=120.0)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert re.search(expected, message, re.DOTALL), message
    assert "Traceback" not in message


@pytest.mark.usefixtures("keras")
def test_a_program_that_ends_early_gives_a_partial_profile(file_of: Callable[..., Path]) -> None:
    text = START + "model.fit(x[:60], y[:60], verbose=0)\nraise ValueError('later')"
    profile = profile_script(file_of(text, "train.py"), time_limit_s=120.0)
    assert profile.notes[0].startswith("partial: the program raises ValueError: later after 2 steps")
    assert facts(profile) == (32, 60, 0, "keep", 1)


def test_slow_steps_are_not_awaited(run: Callable[..., ModelProfile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fomkit.frontends.script.keras_watch.MAX_STEPS_S", 0.0)
    profile = run("model.fit(x, y, epochs=4, verbose=0)")
    assert told(profile, "its step 1")
    assert facts(profile) == (32, 100, 0, "keep", 4)
    assert not told(profile, "partial")


ROUNDS = {
    "each round of a loop": ("for part in range(1, 6):\n    model.fit(x, y, epochs=4, verbose=0)", (100, 20)),
    "folds": ("for fold in range(5):\n    network().fit(x, y, epochs=4, verbose=0)", (100, 4)),
    "unknown": ("while model.count_params():\n    model.fit(x, y, verbose=0)", (100, None)),
    "batches": ("for part in range(6):\n    for i in range(4):\n        model.train_on_batch(x, y)", (2400, 1)),
    "two calls": ("for i in range(4):\n    for _ in 'a':\n        model.train_on_batch(x, y)\n    "
                  "model.train_on_batch(x, y)", (None, None)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ROUNDS.values(), ids=ROUNDS)
def test_the_loops_around_a_training_call_repeat_it(
    run: Callable[..., ModelProfile], text: str, expected: tuple[int | None, ...]
) -> None:
    profile = run(text)
    assert (profile.data.train_samples, profile.run.epochs) == expected


GAN = """
import tensorflow as tf
judge = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
first, second = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)
@tf.function
def judge_step(values):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(judge(model(values)) ** 2)
    first.apply_gradients(zip(tape.gradient(loss, judge.trainable_variables), judge.trainable_variables))
@tf.function
def make_step(count):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(judge(model(tf.random.normal((count, 8)))) ** 2)
    second.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
data = tf.data.Dataset.from_tensor_slices(tf.zeros((200, 8))).batch(10)
for epoch in range(7):
    for at, values in enumerate(data):
        judge_step(values)
        {}make_step(10)
"""


def test_a_round_of_two_functions_is_a_step(run: Callable[..., ModelProfile]) -> None:
    """A judge and its generator, whose batch is a plain number."""
    profile = run(GAN.format(""))
    network, judge = 8 * 16 + 16 * 3, 3 * 2
    assert facts(profile) == (10, 200, None, "keep", 7)
    for batch in (10, 30):
        rows = numbers(profile, batch=batch)
        assert flop(rows, "forward") == 2 * 2 * batch * (network + judge)
        assert flop(rows, "backward_weight") == 2 * batch * (network + judge)
    assert profile.parameters_total == network + 16 + 3 + judge + 2
    assert told(profile, "one step is a round of 2 models: beside that above, judge_step at train.py:")
    assert not told(profile, "partial")


def test_functions_that_run_unequally_often_are_told(run: Callable[..., ModelProfile]) -> None:
    profile = run(GAN.format("if at % 5 == 4: "))
    assert told(profile, "taken from the running program: judge_step at train.py")
    assert told(profile, "partial: the program trains elsewhere too, which is left out: make_step at train.py")


PAIR = """
judge = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
judge.compile("sgd", "mse")
judge.trainable = {judged}
both = keras.Sequential([model, judge])
both.compile("adam", "mse")
for epoch in range(70):
    for _ in range(2):
        judge.train_on_batch(np.ones((20, 3)), np.ones((20, 2)))
    judge.train_on_batch(np.ones((20, 3)), np.zeros((20, 2)))
    both.train_on_batch(x[:40], np.ones((40, 2)))
"""


@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
@pytest.mark.parametrize("judged", [True, False])
def test_a_round_of_two_models_that_train_on_batches_is_a_step(
    run: Callable[..., ModelProfile], judged: bool
) -> None:
    """The judge trains three times a round on half of the samples; frozen, it only runs forward."""
    profile = run(PAIR.format(judged=judged))
    rows, network = numbers(profile), 8 * 16 + 16 * 3
    assert facts(profile) == (40, 70 * 40, None, "drop", 1)
    assert flop(rows, "forward") == 2 * (40 * (network + 3 * 2) + 3 * 20 * 3 * 2)
    assert flop(rows, "backward_weight") == 2 * (40 * (network + judged * 3 * 2) + 3 * 20 * 3 * 2 * judged)
    assert profile.parameters_total == network + 16 + 3 + 3 * 2 + 2
    assert told(profile, "one step is a round of 2 models: beside that above, 3 at train.py:")
    assert told(profile, "has no trainable weight then: Keras 3 reads `trainable`") == (not judged)
    assert not told(profile, "partial")
