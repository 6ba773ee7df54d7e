import numpy as np
import pytest

from manyarms.core.labels import as_labels, odd_number


def test_labels_in_columns_are_numbered_by_their_combination():
    columns = np.array([["tea", "red"], ["tea", "blue"], ["mug", "red"], ["tea", "red"], ["mug", None]], dtype=object)
    codes = as_labels("clusters", columns, n_actions=5)
    same = np.equal.outer(codes, codes)
    assert same.tolist() == [[a == b for b in columns.tolist()] for a in columns.tolist()]


AGES = [str(age) for age in range(18, 60)]


@pytest.mark.parametrize(
    ("texts", "odd"),
    [
        ([*AGES, "1,250.00"], "1,250.00"),
        ([*AGES, "unknown"], "unknown"),
        ([f"€ {age},50" for age in AGES], "€ 18,50"),
        ([f"{age} %" for age in AGES], "18 %"),
        (AGES, None),
        ([f"{age:05d}" for age in range(40)], None),
        ([f"B{age}" for age in AGES], None),
        ([*AGES, "Oslo", "Riga", "Bonn", "Rome"], None),
        (["1,250.00", "3"], None),
    ],
)
def test_columns_of_numbers_that_are_read_as_texts_are_told_from_codes_and_words(texts, odd):
    assert odd_number(texts) == odd
