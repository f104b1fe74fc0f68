"""One word, one meaning: the words that code, files, tables and pages share; docs/glossary.md is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from fomkit.ops.tables import PASSES


class Word(NamedTuple):
    """A word, what it means, and what it is not to be taken for ("" where nothing is near)."""

    word: str
    meaning: str
    not_this: str = ""


VOCABULARY: Mapping[str, tuple[Word, ...]] = {
    "What is described": (
        Word("model", "the network", "what predicts, which is an estimator"),
        Word("estimator", "what predicts a time"),
        Word(
            "profile", "a description on disk, of a model or a machine", "what a profiler writes, which is a trace"
        ),
        Word("trace", "what a profiler writes"),
        Word("machine", "the whole: nodes, devices, links"),
        Word("node", "devices in one box, with their host"),
        Word("device", "one accelerator or processor"),
        Word("link", "what connects devices, on a tier: device, node or system"),
        Word("suite", "lines of work with a baseline, a scope and a mean, which a figure of merit is over"),
        Word("party", "whose figure it is: lab, vendor or published"),
        Word("basis", "what kind of figure it is, from measured to assumed"),
    ),
    "Work": (
        Word("op", "a call of the framework, one row of a table", "a kernel; an op may start several"),
        Word("kernel", "what a device runs"),
        Word("kind", "what an op is by its arithmetic: gemm, conv, pointwise, …"),
        Word("engine", "arithmetic unit: vector (general) or matrix (tensor core, systolic array)"),
        Word("pass", "a part of a step: forward, backward, update"),
        Word("phase", "a part of a run: train, validate, infer, load, checkpoint"),
        Word("microbatch", "what one forward and backward pass works on, where a step has several"),
        Word("step", "all passes of one batch"),
        Word("epoch", "the steps of all training samples once, and the validation after them"),
        Word("run", "one training from start to end"),
        Word("unit of work", "what the user counts: by default one trained model, one or more runs"),
        Word("campaign", "so many units of work of each line of a suite"),
    ),
    "Amounts": (
        Word("flop", "one arithmetic operation; a fused multiply-add is 2", "a rate, which is flop/s"),
        Word("byte", "compulsory traffic of device memory: each tensor once", "what a cache moves"),
        Word("launches", "kernels that the host starts"),
        Word("arithmetic intensity", "flop over byte of an op"),
        Word("ridge point", "flop/s over byte/s of a device: below it memory bounds an op, above it arithmetic"),
        Word("peak fraction", "flop of a step over what the dense peak does in its time", "an occupancy"),
        Word("MFU", "peak fraction of a step that counts the flop of the model alone"),
        Word("HFU", "peak fraction of a step that counts the flop that run, recomputed ones too"),
        Word("achieved occupancy", "threads that ran of those the device can hold, mean over time"),
        Word("theoretical occupancy", "the same as the compiler's limits allow; says nothing of time"),
    ),
    "Time": (
        Word("floor", "what an op takes at least: the longer of flop at peak and byte at bandwidth"),
        Word("utilisation", "floor over time; above 1 needs a reason, such as a cache"),
        Word("launch_s", "what it costs the host to start a kernel"),
        Word("alpha_s", "what a message of no length takes on a link"),
        Word("busy_s", "what something works, whether anybody waits for it or not"),
        Word("exposed_s", "what nothing hides of that"),
        Word("wall_s", "what a clock on the wall shows"),
        Word("unit_per_day", "units of work that the scope finishes in a day"),
        Word("FOM", "figure of merit: how many times more units a day than the baseline, over a suite"),
    ),
    "Knowing": (
        Word("interval", "ends between which the truth lies so often, 80 % unless asked otherwise"),
        Word("evidence", "the timed rows nearest to an op, and their distance, or the rates used"),
        Word("coverage", "share of the predicted time by time source", "hit rate"),
        Word("hit rate", "share of intervals that hold the truth", "coverage"),
        Word("scope", "what a rate counts: one device, a node, the whole system"),
        Word("claim", "what a device model may say of a measurement: its time, only its ratio, or neither"),
        Word("excludes", "terms that nobody stated, by name; a time is then a lower bound"),
        Word("excludes_alone", "terms that one side of a ratio leaves out and the other holds, by machine"),
        Word("weak scaling", "more devices, the batch of each kept"),
        Word("strong scaling", "more devices, the batch of all kept"),
    ),
}
"""By what the words are about."""

TIME_SOURCE_MEANINGS: Mapping[str, str] = {
    "measured": "this very op was timed on this machine",
    "interpolated": "from timed ops near it",
    "extrapolated": "from timed ops farther off; the interval is wider",
    "transferred": "from another timing by a ratio: of its forward pass, of the product in another storage order, "
    "of the op in the other 16-bit format of a matrix engine, of an op of its traffic, "
    "of the same op on the machine that was timed",
    "roofline": "no such op was timed: peak, bandwidth and launch cost, times the utilisation of timed machines",
    "alpha_beta": "of a message: start-up, and its bytes over the link's bandwidth",
    "assumed": "stated for this very op by somebody who did not measure it: simulated, promised, guessed",
}
BOUND_MEANINGS: Mapping[str, str] = {
    "compute": "arithmetic at the peak rate",
    "memory": "traffic at the memory's bandwidth",
    "launch": "the host, which cannot start kernels faster",
    "network": "messages between devices",
    "input": "loading the data of a step",
    "measured": "not told: the time was measured, or the machine states no rates",
}
BASIS_MEANINGS: Mapping[str, str] = {
    "measured": "somebody timed it, and the source says where",
    "simulated": "a simulator's, cycle by cycle or trace driven",
    "modelled": "made by a formula, as all that fomkit predicts",
    "estimated": "a person's estimate",
    "committed": "a vendor's promise, which an acceptance test holds against measurements",
    "published": "printed in a datasheet or a paper",
    "assumed": "taken for want of better; to be replaced first",
}
PARTY_MEANINGS: Mapping[str, str] = {
    "lab": "whoever buys and measures",
    "vendor": "whoever sells",
    "published": "anybody else, in print",
}
SCOPE_MEANINGS: Mapping[str, str] = {
    "device": "one device",
    "node": "all devices of a node",
    "system": "all nodes, times their availability",
    "chip": "of energy: a chip with the memory on its board",
    "wall": "of energy: all behind a wall meter",
}
PASS_MEANINGS: Mapping[str, str] = dict(
    zip(
        PASSES,
        ("loss from data", "gradients, of both or of neither in particular", "gradient of what came in",
         "gradient of a weight", "the optimizer's"),
        strict=True,
    )
)  # fmt: skip
CHOICES: Mapping[str, Mapping[str, str]] = {
    "time_source": TIME_SOURCE_MEANINGS,
    "bound": BOUND_MEANINGS,
    "basis": BASIS_MEANINGS,
    "party": PARTY_MEANINGS,
    "scope": SCOPE_MEANINGS,
    "pass_name": PASS_MEANINGS,
}
"""By column: the words that it may hold, each with its meaning."""
BESIDE = "not the device"
"""The part of a step that runs while the device computes: it counts only where it is the longer."""


_BETWEEN = "; "
_TIMES = re.compile(r" ×(\d{1,12})$")
_PLACE = re.compile(r":(\d{1,9})(?: (\S+))?$")


class CodeLine(NamedTuple):
    """One line of code.

    `file`: path as the profile gives it; a text of another form is all file.
    `function`: with its class; "" where nobody says.
    `times`: executions of the op that are this line's; None for all that the other lines leave.
    """

    file: str
    line: int | None
    function: str
    times: int | None


def code_line(file: str, line: int, function: str) -> str:
    """Write one line of code.

    >>> code_line("model.py", 12, "Block.forward")
    'model.py:12 Block.forward'
    """
    plain = (text.replace(";", ",").replace("×", "x") for text in (file, function))
    return f"{next(plain)}:{line} {next(plain).replace(' ', '_')}"


def join_lines(lines: Mapping[str, int], count: int | str) -> str:
    """Write the cell of a row.

    `lines`: executions by line of code; `count`: executions of the row; with an expression in named sizes nobody
    knows how many are each line's.

    >>> join_lines({"model.py:12 f": 2}, 2), join_lines({"model.py:12 f": 2, "model.py:14 f": 1}, 3)
    ('model.py:12 f', 'model.py:12 f ×2; model.py:14 f ×1')
    """
    if isinstance(count, str) or list(lines.values()) == [count]:
        return _BETWEEN.join(lines)
    return _BETWEEN.join(f"{line} ×{times}" for line, times in lines.items())


def split_code_lines(cell: str) -> list[CodeLine]:
    """Read the cell of a row; any text is taken.

    >>> split_code_lines("model.py:12 Block.forward ×2; model.py:14")
    [CodeLine(file='model.py', line=12, function='Block.forward', times=2), \
CodeLine(file='model.py', line=14, function='', times=None)]
    """
    return [_one(text.strip()) for text in cell.split(_BETWEEN.strip()) if text.strip()]


def _one(text: str) -> CodeLine:
    times = _TIMES.search(text)
    text = text[: times.start()] if times else text
    count = int(times[1]) if times else None
    place = _PLACE.search(text)
    if place is None or not place.start():
        return CodeLine(text, None, "", count)
    return CodeLine(text[: place.start()], int(place[1]), place[2] or "", count)
