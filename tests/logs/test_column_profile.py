import pytest

from manyarms.logs.column_profile import odd_number

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
