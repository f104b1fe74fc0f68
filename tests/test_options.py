"""Named sizes of a study: any batch or sequence without a new trace, and clear refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fomkit
from fomkit.cli.choices import parse_sizes
from fomkit.core.errors import FomkitError
from fomkit.plan.options import Options, choose_scope, choose_sizes


def test_the_batch_may_be_given_either_way() -> None:
    model = fomkit.model("resnet50")
    one = fomkit.estimate(model, "v100", batch=8)
    other = fomkit.estimate(model, "v100", sizes={"batch": 8})
    assert one.step == other.step
    assert one.sizes == {"batch": 8}


def test_a_scope_is_one_that_all_machines_state() -> None:
    alone, many = (
        replace(fomkit.machine("v100"), node_devices=devices, system_nodes=None) for devices in (None, 4)
    )
    assert choose_scope([many], None, 2) == "node"
    assert choose_scope([many, alone], None, 2) == choose_scope([alone, many], None, 2) == "device"
    with pytest.raises(FomkitError, match="does not state the scope 'node'"):
        choose_scope([many, alone], "node")


def test_two_batches_are_a_mistake() -> None:
    with pytest.raises(FomkitError, match="is given as 8 and as 16"):
        _ = Options(batch=8, sizes={"batch": 16}).wanted_sizes


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"sequence": 4}, "--set sequence=4: 'sequence' is not one of its sizes"),
        ({"batch": 0}, "--batch 0 is not possible"),
        ({"fixed": 9}, "its op table is fixed at fixed 7, so 9 needs a new trace.*with --set fixed=9"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused(wanted, words) -> None:
    model = replace(fomkit.model("resnet50"), sizes={"batch": 32, "fixed": 7})
    with pytest.raises(FomkitError, match=words):
        choose_sizes(model, wanted)


def test_a_fixed_size_may_be_named_at_its_own_value() -> None:
    model = replace(fomkit.model("resnet50"), sizes={"batch": 32, "fixed": 7})
    assert choose_sizes(model, {"fixed": 7}) == {"batch": 32, "fixed": 7}


@pytest.mark.parametrize(
    "setting", ["seq", "seq=", "seq=-1", "seq=1.5", "=3", "s q=3", "seq=1.5e0", "seq=" + "9" * 30]
)
def test_a_setting_is_a_name_and_a_whole_number(setting) -> None:
    with pytest.raises(
        FomkitError, match=r"is not a name and a whole number of 1 or more, at most 1e\+15\. Write, for example"
    ):
        parse_sizes([setting])


def test_a_name_is_set_once() -> None:
    with pytest.raises(FomkitError, match="seq is given twice"):
        parse_sizes(["seq=1", "seq=2"])


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("mode", "mode: is 'x'. Give train, infer, prefill or decode."),
        ("fusion", "fusion: is 'x'. Give eager, compiled or vendor."),  # it ended with a KeyError
        ("last_batch", "last_batch: is 'x'. Give drop or keep."),  # it was ignored
    ],
)
def test_a_word_that_is_no_value_of_an_option_is_refused_in_python(option: str, expected: str) -> None:
    with pytest.raises(FomkitError) as refused:
        fomkit.estimate("llama3-8b", "h100-sxm", **{option: "x"})
    assert str(refused.value) == expected
