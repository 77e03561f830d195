"""Errors keep their class across a process boundary, and codes name one class each."""

import pytest

from pagemill import errors


@pytest.mark.parametrize("code", sorted(errors.all_errors()))
def test_an_error_survives_as_code_and_message(code: str) -> None:
    error = errors.from_code(code, "a sentence")
    assert type(error) is errors.all_errors()[code]
    assert error.message == "a sentence"
    assert error.code == code


def test_codes_are_unique() -> None:
    leaves = [cls for cls in errors._leaves(errors.AppError) if cls is not errors.AppError]
    assert len({cls.code for cls in leaves}) == len(leaves)


def test_an_unknown_code_is_a_defect() -> None:
    error = errors.from_code("nonsense", "x")
    assert isinstance(error, errors.Defect)
    assert not error.public
