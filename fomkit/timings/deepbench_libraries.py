"""Libraries that ran the ops of a DeepBench workbook, and their versions, from its sheet of Specs."""

from __future__ import annotations

from collections.abc import Mapping

_CUDA = {"CUDA Version": "CUDA "}
_NETWORK_LIBRARIES = (
    ("cuDNN", {"Cudnn Version": "", **_CUDA}),
    ("MIOpen", {"MIOpen Version": "", "ROCm Version": "ROCm "}),
    ("ARM Compute Library", {"ARM Compute Lib version": ""}),
    ("MKL or LIBXSMM", {"Intel MKL Version": "", "LIBXSMM Version": "LIBXSMM "}),
)
LIBRARIES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {
    "gemm": (
        ("cuBLAS", _CUDA),
        ("ROCm", {"ROCm Version": ""}),
        ("MKL", {"Intel MKL Version": ""}),
        ("gemmlowp", {"Gemmlowp version": ""}),
    ),
    "sparse_gemm": (("cuSPARSE", _CUDA), ("Eigen", {"Eigen Version": ""})),
    "conv": _NETWORK_LIBRARIES,
    "rnn": _NETWORK_LIBRARIES,
    # The rows themselves name the library that was fastest.
    "collective": (
        ("MPI", {"OpenMPI Version": "OpenMPI ", "Intel MLSL Version": "MLSL ", "Intel MPI Version": "MPI "}),
    ),
}
"""By kind: a library, and the Specs that give its version with a word before each; the first that has any wins."""

_UNKNOWN = ("", "-")


def library_of(kind: str, specs: Mapping[str, str]) -> tuple[str, str]:
    """Name the library that ran a kind of op, and its version, from the Specs; "" where they do not say.

    Examples
    --------
    >>> library_of("conv", {"CUDA version": "10.1.243", "Cudnn Version": "7.6.2.24"})
    ('cuDNN', '7.6.2.24; CUDA 10.1.243')
    """
    said = {key.casefold(): value for key, value in specs.items() if value not in _UNKNOWN}
    for name, keys in LIBRARIES.get(kind, ()):
        versions = [f"{word}{said[key.casefold()]}" for key, word in keys.items() if key.casefold() in said]
        if versions:
            return name, "; ".join(versions)
    return "", ""
