"""What an estimate assumes, and what it leaves out."""

from __future__ import annotations

from fomkit.dossier.words import LEFT_OUT, SOURCES
from fomkit.report.book import Listing, Section
from fomkit.study.content import INTERVAL_MEANING
from fomkit.study.estimate import Estimate

_WORDS = (
    "op: one operation of the network, such as a product or a convolution; kind: what sort of work it is",
    "FLOP: one addition or multiplication; a fused multiply-add is two",
    "arithmetic intensity: FLOP for each byte that an op must read from and write to the device's memory",
    "pass: forward, backward (input: gradient of the op's input; weight: of its parameters), update (optimizer)",
    "sizes: of a product (gemm) rows × columns × reduction length, Aᵀ and Bᵀ stored transposed; of a convolution "
    "(conv) batch × channels in→out, height×width, k kernel, s stride, p padding, d dilation, g groups",
    "vector and matrix: general arithmetic units, and units for products (tensor cores and the like)",
)


def limits(one: Estimate, key: str) -> Section:
    """Tell what is assumed and left out, and what the page's words mean."""
    left_out = tuple(LEFT_OUT.get(term, term) for term in one.excludes)
    assumed = (
        f"number formats: {one.formats.said}" if one.formats.said else f"number formats: {one.precision}",
        f"intervals ({one.step.level:.0%}) cover {INTERVAL_MEANING}",
        "a device runs one op after the other; host and input work meanwhile, and the longest decides",
    )
    lists = [
        Listing("Left out; units/day are then upper bounds" if left_out else "Left out",
                left_out or ("nothing that the profiles name",)),
        Listing("Assumed", assumed),
    ]  # fmt: skip
    for title, lines in (("Done otherwise than usual", one.deviations), ("Notes of the model", one.model.notes),
                         ("Notes of the machine", one.machine.notes)):  # fmt: skip
        if lines:
            lists.append(Listing(title, tuple(lines)))
    sources = tuple(f"{name}: {meaning}" for name, meaning in SOURCES.items() if one.coverage.get(name, 0) > 0)
    lists.append(Listing("Words of this page", (*_WORDS, *sources)))
    return Section(f"{key}-limits", "What it assumes and leaves out", lists=tuple(lists))
