"""The order of class names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastconv.loaders.classes import some_of, sort_classes


def test_natural_order_written_out() -> None:
    # The empty text before a leading number is before every other text, as that of "-1".
    names = [
        "", "0", "00", "01", "1", "2", "010", "10", "99999999999999999999",
        "100000000000000000000", "-1", "B2", "b", "b2", "b2a", "b2a1", "b2a10", "b10", "b10a", "c",
    ]  # fmt: skip
    assert list(sort_classes(reversed(names), "natural")) == names


def test_natural_order_of_more_digits_than_python_converts() -> None:
    names = ("9" * 5000, "1" + "0" * 5000)
    assert sort_classes(reversed(names), "natural") == names


@given(st.lists(st.integers(0, 10**30), unique=True))
def test_natural_order_of_numbers_is_theirs(numbers: list[int]) -> None:
    names = [str(number) for number in numbers]
    assert sort_classes(names, "natural") == tuple(str(number) for number in sorted(numbers))


@given(st.lists(st.text("ab019-\u0661"), unique=True))
def test_both_orders_keep_every_name(names: list[str]) -> None:
    assert sort_classes(names, "sorted") == tuple(sorted(names))
    assert sorted(sort_classes(names, "natural")) == sorted(names)
    assert sort_classes(names, "natural") == sort_classes(sorted(names), "natural")


def test_names_are_shown_in_one_line() -> None:
    assert some_of(["a", "b\n", "\udce4"]) == "a, b\\n, \\xe4"
    assert some_of([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
