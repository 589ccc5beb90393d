"""Comparison of values with the cells of a table."""


def is_in(cell, value):
    """Return whether a cell holds the value: any text of the same float, or else `str(value)`."""
    if isinstance(value, float):
        return cell != "" and repr(float(cell)) == repr(value)
    return cell == ("" if value is None else str(value))
