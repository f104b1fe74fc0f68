"""Whether a machine profile stands for a GPU or a processor, as far as its words tell."""

from __future__ import annotations

import re
from typing import Literal

from fomkit.hardware import Machine

DeviceKind = Literal["gpu", "cpu", ""]
_GPU = re.compile(r"\b(nvidia|tesla|geforce|quadro|radeon|instinct|gcn\d|[cr]dna\d?|gpu|cuda)\b")
_CPU = re.compile(r"\b(cpu|x86|xeon|epyc|ryzen|opteron|knights|phi|core|cortex|neoverse|graviton|arm|processor)\b")


def device_kind(machine: Machine) -> DeviceKind:
    """Tell what a machine's device is by its architecture, else by its title; "" where neither says, or both do.

    Parameters
    ----------
    machine : Machine
    """
    for text in (machine.device.architecture, machine.title):
        is_gpu, is_cpu = (one.search(text.lower()) is not None for one in (_GPU, _CPU))
        if is_gpu is not is_cpu:
            return "gpu" if is_gpu else "cpu"
    return ""
