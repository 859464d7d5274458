"""Names that come from programs and from packs of other tools."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastconv.loaders.names import class_names, is_name, problem_of_field, unique_names


@pytest.mark.parametrize("text", ["a", " ", "\udcff", "é", "a/b", "\n"])
def test_names(text: str) -> None:
    assert is_name(text)
    assert class_names([text, "other"]) == (text, "other")


@pytest.mark.parametrize("text", ["", "a\0", "\ud800", None, 5, b"a"])
def test_no_names(text: object) -> None:
    assert not is_name(text)
    assert class_names(["other", text]) == ()


def test_classes_are_each_there_once() -> None:
    assert class_names(["a", "b", "a"]) == ()
    assert class_names([]) == ()


@pytest.mark.parametrize("name", ["txt", "mask.png", "a-b_c.0"])
def test_fields(name: str) -> None:
    assert problem_of_field(name) is None


@pytest.mark.parametrize("name", ["", ".", "a..b", "image", "cls", "png", "é", "A", "a\n", "__a"])
def test_no_fields(name: str) -> None:
    assert problem_of_field(name)


@given(st.lists(st.sampled_from([b"", b"a", b"a.b", b"a\0", b"sample 2", b"a (sample 1)", None])))
def test_every_sample_gets_a_name_of_its_own(names: list[bytes | None]) -> None:
    found = unique_names(names, range(len(names)))
    assert len({*found}) == len(names)
    for number, (name, own) in enumerate(zip(names, found, strict=True)):
        if name and b"\0" not in name and name not in names[:number] and name not in found[:number]:
            assert own == name
        assert is_name(os.fsdecode(own))
