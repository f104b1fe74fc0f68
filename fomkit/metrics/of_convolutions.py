"""The figures of convolutions by each method that computes them."""

from __future__ import annotations

from fomkit.metrics.metric import Metric

_M = Metric
# fmt: off
OF_CONVOLUTIONS: tuple[Metric, ...] = (
    _M("least_flop", "least flop", "flop", "op", "none", "arithmetic", "explain predict",
       "arithmetic by the cheapest known algorithm, transforms included; below flop in convolutions only"),
    _M("additions", "additions", "count", "op", "lower", "arithmetic", "show",
       "additions outside the products: transforms, and sums scattered by col2im"),
    _M("multiplications", "multiplications", "count", "op", "lower", "arithmetic", "show",
       "multiplications of transforms"),
    _M("work_depth", "depth", "count", "op", "lower", "none", "show",
       "longest chain of additions and levels of transforms, with any number of processors"),
    _M("samples_at_once", "at once", "count", "op", "higher", "none", "show",
       "samples of the batch that the workspace holds at once"),
    _M("workspace_byte", "workspace", "byte", "op", "lower", "arithmetic", "show",
       "memory that a method takes besides operands and result"),
    _M("largest_workspace_byte", "largest workspace", "byte", "network", "lower", "none", "show",
       "that of the convolution with most; one would serve all"),
    _M("workspace_limit_byte", "limit", "byte", "network", "none", "none", "show",
       "most workspace that was allowed"),
    _M("products_s", "products", "s", "op", "lower", "arithmetic", "show", "multiply-adds at the engine's peak"),
    _M("transforms_s", "transforms", "s", "op", "lower", "arithmetic", "show",
       "all other arithmetic at the vector engine's peak"),
    _M("memory_s", "memory", "s", "op", "lower", "arithmetic", "show",
       "operands, result and workspace at the bandwidth"),
    _M("direct_s", "direct floor", "s", "network", "lower", "arithmetic", "show",
       "the floors of a step's convolutions by the direct method"),
    _M("best_s", "best floor", "s", "network", "lower", "arithmetic", "show",
       "the same, each by the method of the lowest floor"),
    _M("possible_in", "possible in", "count", "network", "none", "arithmetic", "show",
       "executions that a method can compute"),
    _M("best_in", "best in", "count", "network", "none", "arithmetic", "show",
       "executions of which a method is the best"),
    _M("without_time", "without a time", "count", "network", "lower", "none", "show",
       "convolutions without a predicted time"),
)
# fmt: on
