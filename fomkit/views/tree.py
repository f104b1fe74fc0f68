"""Paths as a tree: each row belongs to its own place and to every place above it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fomkit.views.places import BELOW, INSIDE

SEPARATORS: Mapping[str, str] = {"module": ".", "pass": "_", "scope": INSIDE, "code": BELOW}
"""Groupings whose names are paths, and what stands between their parts."""


class Place(NamedTuple):
    """One place of a tree: its path, its parts, and the labels of the rows that are its own and below it."""

    path: str
    depth: int
    own: frozenset[str]
    inclusive: frozenset[str]


def _cut(path: str, separator: str, depth: int | None) -> str:
    parts = path.split(separator) if path else []
    return separator.join(parts if depth is None else parts[:depth])


def tree_labels(labels: Iterable[str], separator: str, depth: int | None = None) -> Iterator[Place]:
    """Give the places of a tree, each before those below it, in order of first appearance.

    Parameters
    ----------
    labels : iterable of str
        Paths of rows; "" is the root, which is no place of its own unless rows lie there.
    separator : str
    depth : int, optional
        Deepest level shown; rows below it are their ancestor's own.

    Examples
    --------
    >>> for place in tree_labels(["a.x", "b", "a.y.z"], ".", 2):
    ...     print(place.path, place.depth, sorted(place.own), sorted(place.inclusive))
    a 0 [] ['a.x', 'a.y.z']
    a.x 1 ['a.x'] ['a.x']
    a.y 1 ['a.y.z'] ['a.y.z']
    b 0 ['b'] ['b']
    """
    own: dict[str, set[str]] = {}
    inclusive: dict[str, set[str]] = {}
    children: dict[str, list[str]] = {"": []}
    for label in dict.fromkeys(labels):
        path = _cut(label, separator, depth)
        own.setdefault(path, set()).add(label)
        parts = path.split(separator) if path else []
        above = ""
        for level in range(1, len(parts) + 1):
            place = separator.join(parts[:level])
            if place not in inclusive:
                children.setdefault(above, []).append(place)
            inclusive.setdefault(place, set()).add(label)
            above = place
    if "" in own:
        yield Place("", 0, frozenset(own[""]), frozenset(own[""]))
    waiting = [(place, 0) for place in reversed(children[""])]
    while waiting:
        place, level = waiting.pop()
        yield Place(place, level, frozenset(own.get(place, ())), frozenset(inclusive[place]))
        waiting += [(child, level + 1) for child in reversed(children.get(place, []))]
