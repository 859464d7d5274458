"""Writes LMDB databases (data format 1) directly, every page at a place known beforehand.

liblmdb builds its B+tree by transactions, one process at a time. Here the keys are known and
ascending and the sizes too, so the finished tree is computed first and its pages are written by all
processes at once. What liblmdb reads is kept to the byte; all of it is little-endian, 64 bit, in
pages of 4096:

    page head   u64 page number | u16 0 | u16 flags (1 branch, 2 leaf, 4 overflow, 8 meta)
                | u16 lower | u16 upper                  (overflow: u32 number of pages instead)
    tree page   head, then the u16 places of its nodes up to `lower`; nodes from the end down to
    `upper` leaf node   u16 low and u16 high half of the value's size | u16 flags | u16 key size |
    key
                | value, or (flags 1) the u64 number of its first overflow page; of even length
    branch node u16 low, u16 middle and u16 high third of the child's page number | u16 key size |
    key
                (the first key of a page is empty)
    overflow    head, then the value, over as many pages as it needs
    meta page   (0 and 1) head | u32 0xBEEFC0DE | u32 1 | u64 0 | u64 map size | free DB | main DB
                | u64 last page | u64 transaction
    DB          u32 pad | u16 flags | u16 depth | u64 branch pages | u64 leaf pages
                | u64 overflow pages | u64 entries | u64 root

Source: liblmdb's own comments (mdb.c, LMDB 0.9). Pages lie in post-order (the overflow pages of a
leaf, the leaf, after its children the branch, the root last), the order of liblmdb's compacting
copy.

The keys: KEY for the image, KEY.FIELD for sidecars; then `__len__` (the count in ASCII), `__meta__`
(JSON) and the columns of the sample table under `__table__/`.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastconv.converters.formats.webdataset import digits
from fastconv.converters.writer import (
    Array,
    Frame,
    Layout,
    Part,
    Rows,
    Sharding,
    Writer,
    key_width,
    pwrite_all,
)
from fastconv.loaders.errors import UsageError
from fastconv.loaders.meta import PackMeta, Shard
from fastconv.loaders.table import SampleTable

__all__ = ["LMDBWriter"]

PAGE, HEAD = 4096, 16
BRANCH, LEAF, OVERFLOW, META = 1, 2, 4, 8
NONE = 2**64 - 1
NODE = 8
"""Bytes of a node before its key."""
MOST_INLINE = 2038
"""A node with more bytes than this keeps its value in overflow pages: two nodes must fit a page."""
MOST_VALUE = 2**32 - 1


def even(numbers: Any) -> Any:
    """Returns the numbers rounded up to even ones."""
    return numbers + (numbers & 1)


def cut_pages(need: Array, first_less: Rows | int = 0) -> Rows:
    """Returns the first item of each page, and the number of items, when pages are filled in turn.

    Args:
        need: Bytes that each item takes in a page, integers (n,).
        first_less: How much less it takes as a page's first.
    """
    stops = np.zeros(need.shape[0] + 1, np.int64)
    np.cumsum(need, out=stops[1:])
    less = np.broadcast_to(np.asarray(first_less, np.int64), need.shape)
    bounds, start, count = [0], 0, need.shape[0]
    while True:
        room = int(stops[start]) + PAGE - HEAD + int(less[start])
        start = int(np.searchsorted(stops, room, side="right")) - 1
        if start >= count:
            return np.array([*bounds, count], np.int64)
        bounds.append(start)


@dataclass(frozen=True, slots=True)
class Tree:
    """A finished tree.

    Attributes:
        node: int64 (E,): place of each entry's node in the file.
        value: int64 (E,): place of each entry's value in the file.
        leaf_first: int64 (L + 1,): first entry of each leaf.
        leaf_page: int64 (L,): page number of each leaf.
        branches: (page number, pages and first keys' entries of its children) of each branch page.
        depth, overflow_pages, root, pages: For the meta pages; `pages` is the file's length in
            pages.
    """

    node: Rows
    value: Rows
    leaf_first: Rows
    leaf_page: Rows
    branches: list[tuple[int, Rows, Rows]]
    depth: int
    overflow_pages: int
    root: int
    pages: int


def node_sizes(key: Rows, size: Rows) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns each entry's bytes in its leaf, padded, and its overflow pages, int32 (E,) both."""
    inline = NODE + key + size <= MOST_INLINE
    node = (NODE + key + np.where(inline, size, 8)).astype(np.int32)
    runs = ((HEAD - 1 + size) // PAGE + 1).astype(np.int32)
    runs[inline] = 0
    return even(node), runs


def build_tree(key: Rows, size: Rows) -> Tree:
    """Returns the tree of entries in order, from the sizes of their keys and values, int64 (E,)."""
    node, runs = node_sizes(key, size)
    leaf_first = cut_pages(node + np.int32(2))
    run_stop = np.zeros(runs.shape[0] + 1, np.int64)
    np.cumsum(runs, out=run_stop[1:])
    # Levels of branches: the first item of each page, over the items of the level below.
    levels: list[Rows] = []
    first_entry = leaf_first[:-1]
    while first_entry.shape[0] > 1:
        branch_need = even(NODE + key[first_entry]) + 2
        bounds = cut_pages(branch_need, branch_need - even(NODE) - 2)
        if bounds[-1] - bounds[-2] < 2:  # liblmdb aborts on a branch with one child
            bounds[-2] -= 1
        levels.append(bounds)
        first_entry = first_entry[bounds[:-1]]
    # Page numbers in post-order. A leaf comes after the overflow pages of all leaves up to it, the
    # leaves before it, and the branches that were complete before it.
    leaves = leaf_first.shape[0] - 1
    branches_before = np.zeros(leaves + 1, np.int64)
    ends: list[Rows] = []  # of each level's pages, as numbers of leaves
    in_leaves = np.arange(leaves + 1)
    for bounds in levels:
        in_leaves = in_leaves[bounds]
        ends.append(in_leaves[1:])
        np.add.at(branches_before, in_leaves[1:], 1)
    branches_before = np.cumsum(branches_before)
    leaf_page = 2 + run_stop[leaf_first[1:]] + np.arange(leaves) + branches_before[:-1]
    branches: list[tuple[int, Rows, Rows]] = []
    pages, first_entry = leaf_page, leaf_first[:-1]
    for level, bounds in enumerate(levels):
        # A branch follows its last leaf and the branches of lower levels that end there too.
        own = leaf_page[ends[level] - 1] + 1 + level
        for number, a, b in zip(
            own.tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True
        ):
            branches.append((number, pages[a:b], first_entry[a:b]))
        pages, first_entry = own, first_entry[bounds[:-1]]
    # Nodes fill a leaf from its end; the overflow pages of its entries lie before it, in order.
    # There are as many entries as samples or more, so their arrays are worked on in place.
    leaf = np.repeat(np.arange(leaves, dtype=np.int32), np.diff(leaf_first))
    filled = np.cumsum(node, dtype=np.int64)
    before = np.where(leaf_first[:-1] > 0, filled[leaf_first[:-1] - 1], 0)
    node_place = ((leaf_page + 1) * PAGE + before)[leaf]
    node_place -= filled
    del filled, node
    overflow_pages = int(run_stop[-1])
    value = run_stop[:-1]
    value += (2 + np.arange(leaves) + branches_before[:-1])[leaf]
    del leaf
    value *= PAGE
    value += HEAD
    inline = np.flatnonzero(runs == 0)
    value[inline] = node_place[inline] + NODE + key[inline]
    root = int(pages[0])
    return Tree(
        node_place, value, leaf_first, leaf_page, branches,
        len(levels) + 1, overflow_pages, root, root + 1,
    )  # fmt: skip


def page_head(page: Rows, flags: int, lower: Rows, upper: Rows) -> npt.NDArray[np.uint8]:
    """Returns heads of tree pages, uint8 (n, 16)."""
    head = np.zeros(page.shape[0], np.dtype("<u8, <u2, <u2, <u2, <u2"))
    head["f0"], head["f2"], head["f3"], head["f4"] = page, flags, lower, upper
    return head.view(np.uint8).reshape(-1, HEAD)


def node_heads(size: Rows, key: npt.NDArray[np.uint8], page: Rows | None) -> npt.NDArray[np.uint8]:
    """Returns leaf nodes up to their values, or whole with the first overflow page, uint8 (n, ...).

    Args:
        size: Sizes of the values, int64 (n,).
        key: The keys, uint8 (n, width).
        page: First overflow page of each; None: the value follows in the leaf.
    """
    count, width = key.shape
    head = np.zeros((count, 4), "<u2")
    head[:, 0], head[:, 1], head[:, 2], head[:, 3] = (
        size & 0xFFFF,
        size >> 16,
        page is not None,
        width,
    )
    blocks = [head.view(np.uint8).reshape(count, NODE), key]
    if page is not None:
        blocks.append(page.astype("<u8").view(np.uint8).reshape(count, 8))
    return np.concatenate(blocks, axis=1)


def run_heads(place: Rows, size: Rows) -> npt.NDArray[np.uint8]:
    """Returns heads of overflow runs whose values lie at these places, uint8 (n, 16)."""
    head = np.zeros(place.shape[0], np.dtype("<u8, <u2, <u2, <u4"))
    head["f0"], head["f2"], head["f3"] = place // PAGE, OVERFLOW, (HEAD - 1 + size) // PAGE + 1
    return head.view(np.uint8).reshape(-1, HEAD)


class LMDBWriter(Writer):
    """Writes a folder with a `data.mdb`, as `lmdb.open` expects by default."""

    name = "lmdb"
    title = "LMDB"
    suffixes = (".lmdb",)
    is_folder = True
    own_files = ("data.mdb", "lock.mdb")
    table_inside = True

    def lay_out(
        self, folder: str, stem: str | None, sharding: Sharding, meta: PackMeta, table: SampleTable
    ) -> Layout:
        for name, size in zip(table.fields, table.size, strict=True):
            if size.max(initial=0) > MOST_VALUE:
                raise UsageError(
                    f"LMDB holds no value over 4 GiB: leave the {name} of sample "
                    f"{int(size.argmax())} "
                    f"({table.path(int(size.argmax()))}) out, or choose another format"
                )
        tail = tail_sizes(meta, table)
        if max(tail.values()) > MOST_VALUE:
            raise UsageError(
                f"LMDB cannot hold the table of {len(table)} samples: choose another format"
            )
        width = key_width(len(table))
        there = np.stack([size >= 0 for size in table.size], axis=1)
        entry = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        key_sizes = [
            width + (len(name) + 1 if slot else 0) for slot, name in enumerate(table.fields)
        ]
        keys = np.broadcast_to(np.array(key_sizes, np.int16), there.shape)[there]
        sizes = np.stack(table.size, axis=1)[there]
        tree = build_tree(
            np.concatenate([keys, np.array([len(name) for name in tail], np.int16)]),
            np.concatenate([sizes, list(tail.values())]),
        )
        places = np.zeros(there.shape, np.uint64)
        places[there] = tree.value[: int(entry[-1])]
        own = {"tree": tree, "entry": entry, "tail": tail}
        shard = Shard("data.mdb", tree.pages * PAGE)
        bounds = np.array([0, len(table)], np.int64)
        offset = tuple(np.ascontiguousarray(column) for column in places.T)
        return Layout((shard,), bounds, offset, (0,) * len(offset), own)

    def part(self, layout: Layout, start: int, stop: int) -> dict[str, Array]:
        entry = layout.own["entry"]
        return leaf_pieces(layout.own["tree"], int(entry[start]), int(entry[stop]))

    def frame(self, part: Part, rows: Rows) -> Frame:
        keys = digits(part.first_row + np.arange(len(part)), key_width(part.samples), 10)
        there = np.stack([size >= 0 for size in part.size], axis=1)
        entry = np.cumsum(there.reshape(-1)).reshape(there.shape) - 1
        node = part.own["node"]
        blocks = []
        for slot, name in enumerate(part.fields):
            has = there[:, slot]
            key = keys[has]
            if slot:
                suffix = np.frombuffer(b"." + name.encode(), np.uint8)
                key = np.concatenate(
                    [key, np.broadcast_to(suffix, (key.shape[0], suffix.shape[0]))], axis=1
                )
            size, place = part.size[slot][has], part.place[slot][has]
            mine = node[entry[has, slot]]
            big = NODE + key.shape[1] + size > MOST_INLINE
            small = ~big
            blocks.append((mine[small], node_heads(size[small], key[small], None)))
            blocks.append((mine[big], node_heads(size[big], key[big], place[big] // PAGE)))
            blocks.append((place[big] - HEAD, run_heads(place[big], size[big])))
        blocks.append((part.own["head_place"], part.own["head"].reshape(-1, HEAD)))
        frame = Frame.joined(*blocks)
        pointers = (node % PAGE).astype("<u2").view(np.uint8)
        return Frame(
            np.concatenate([frame.place, part.own["run_place"]]),
            np.concatenate([frame.data, pointers]).data,
            np.concatenate([frame.end, len(frame.data) + 2 * part.own["run_stop"]]),
        )

    def extents(self, part: Part) -> tuple[Rows, ...]:
        width = key_width(part.samples)
        extents = []
        for slot, (name, size) in enumerate(zip(part.fields, part.size, strict=True)):
            head = NODE + width + (len(name) + 1 if slot else 0)
            pages = (HEAD + size + PAGE - 1) // PAGE * PAGE - HEAD
            extents.append(np.where(head + size > MOST_INLINE, pages, size + (head + size & 1)))
        return tuple(extents)

    def finish(self, folder: str, layout: Layout, meta: PackMeta, table: SampleTable) -> None:
        tree: Tree = layout.own["tree"]
        first = int(layout.own["entry"][-1])
        columns = {f"__table__/{name}": array for name, array in table.arrays().items()}
        places = dict(zip(layout.own["tail"], tree.value[first:].tolist(), strict=True))
        values = {"__len__": b"%d" % len(table), "__meta__": meta_json(meta, places).encode()}
        fd = os.open(os.path.join(folder, "data.mdb"), os.O_WRONLY)
        try:
            for number, (name, place) in enumerate(places.items(), first):
                if name in values:
                    value = memoryview(values[name])
                else:
                    value = np.ascontiguousarray(columns[name]).view(np.uint8).data
                size, key = np.array([value.nbytes]), np.frombuffer(name.encode(), np.uint8)[None]
                at = np.array([place])
                big = NODE + len(name) + value.nbytes > MOST_INLINE
                node = node_heads(size, key, at // PAGE if big else None)
                pwrite_all(fd, memoryview(node.tobytes()), int(tree.node[number]))
                if big:
                    pwrite_all(fd, memoryview(run_heads(at, size).tobytes()), place - HEAD)
                pwrite_all(fd, value, place)
            own = leaf_pieces(tree, first, tree.node.shape[0])
            for head, place in zip(
                own["head"].reshape(-1, HEAD), own["head_place"].tolist(), strict=True
            ):
                pwrite_all(fd, memoryview(head.tobytes()), place)
            pointers = (own["node"] % PAGE).astype("<u2")
            start = 0
            for place, stop in zip(
                own["run_place"].tolist(), own["run_stop"].tolist(), strict=True
            ):
                pwrite_all(fd, memoryview(pointers[start:stop].tobytes()), place)
                start = stop
            key_of = EntryKeys(layout, table)
            for page, children, entries in tree.branches:
                pwrite_all(
                    fd,
                    memoryview(
                        branch_page(page, children.tolist(), [key_of(e) for e in entries.tolist()])
                    ),
                    page * PAGE,
                )
            pwrite_all(fd, memoryview(meta_pages(tree)), 0)
        finally:
            os.close(fd)


class EntryKeys:
    """Gives the key of any entry by its number."""

    def __init__(self, layout: Layout, table: SampleTable) -> None:
        self.entry: Rows = layout.own["entry"]
        self.tail: list[str] = list(layout.own["tail"])
        self.table = table
        self.width = key_width(len(table))

    def __call__(self, number: int) -> bytes:
        """Returns the key of an entry."""
        if number >= self.entry[-1]:
            return self.tail[number - int(self.entry[-1])].encode()
        row = int(np.searchsorted(self.entry, number, side="right")) - 1
        there = [slot for slot, size in enumerate(self.table.size) if size[row] >= 0]
        slot = there[number - int(self.entry[row])]
        key = f"{row:0{self.width}d}"
        return (f"{key}.{self.table.fields[slot]}" if slot else key).encode()


def leaf_pieces(tree: Tree, first: int, stop: int) -> dict[str, Array]:
    """Returns what entries [first, stop) bring to the heads of their leaves.

    Returns:
        node: place of each entry's node; its low bits are its u16 in the leaf's array.
        run_place, run_stop: where these u16 go: those up to each `run_stop` follow `run_place`.
        head_place, head: heads of the leaves whose first entry is among these.
    """
    leaf_first = tree.leaf_first
    a = int(np.searchsorted(leaf_first, first, side="right")) - 1
    b = int(np.searchsorted(leaf_first, stop, side="left"))
    starts, stops = leaf_first[a:b], leaf_first[a + 1 : b + 1]
    page = tree.leaf_page[a:b]
    run_first = np.maximum(starts, first)
    whole = starts >= first
    last = tree.node[stops - 1] - page * PAGE
    heads = page_head(page[whole], LEAF, HEAD + 2 * (stops - starts)[whole], last[whole])
    return {
        "node": tree.node[first:stop],
        "run_place": page * PAGE + HEAD + 2 * (run_first - starts),
        "run_stop": np.minimum(stops, stop) - first,
        "head_place": page[whole] * PAGE,
        "head": heads.reshape(-1),
    }


def branch_page(page: int, children: list[int], keys: list[bytes]) -> bytes:
    """Returns a branch page; the first key is stored empty."""
    body, upper = bytearray(PAGE), PAGE
    for number, (child, key) in enumerate(zip(children, keys, strict=True)):
        key = key if number else b""
        node = (
            struct.pack("<HHHH", child & 0xFFFF, child >> 16 & 0xFFFF, child >> 32, len(key)) + key
        )
        upper -= even(len(node))
        body[upper : upper + len(node)] = node
        struct.pack_into("<H", body, HEAD + 2 * number, upper)
    struct.pack_into("<QHHHH", body, 0, page, 0, BRANCH, HEAD + 2 * len(children), upper)
    return bytes(body)


def meta_pages(tree: Tree) -> bytes:
    """Returns both meta pages: an empty database of transaction 0, and ours of transaction 1."""
    free = struct.pack("<IHHQQQQQ", PAGE, 8, 0, 0, 0, 0, 0, NONE)
    empty = struct.pack("<IHHQQQQQ", 0, 0, 0, 0, 0, 0, 0, NONE)
    main = struct.pack(
        "<IHHQQQQQ", 0, 0, tree.depth, len(tree.branches), tree.leaf_page.shape[0],
        tree.overflow_pages, tree.node.shape[0], tree.root,
    )  # fmt: skip
    pages = b""
    for number, (database, last, transaction) in enumerate([(empty, 1, 0), (main, tree.root, 1)]):
        head = struct.pack("<QHHHH", number, 0, META, 0, 0)
        head += struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, tree.pages * PAGE)
        pages += (head + free + database + struct.pack("<QQ", last, transaction)).ljust(PAGE, b"\0")
    return pages


def meta_json(meta: PackMeta, places: dict[str, int]) -> str:
    """Returns the value of `__meta__`: with the place of each column, by which a reader knows that
    nothing was moved; as long whatever they are."""
    return meta.to_json(
        {name.partition("/")[2]: f"{place:016x}" for name, place in places.items() if "/" in name}
    )


def tail_sizes(meta: PackMeta, table: SampleTable) -> dict[str, int]:
    """Returns the keys after those of the samples, in order, with the sizes of their values."""
    columns = {f"__table__/{name}": size for name, size in table.column_sizes().items()}
    text = meta_json(meta, dict.fromkeys(columns, 0))
    return {"__len__": len(str(len(table))), "__meta__": len(text), **dict(sorted(columns.items()))}
