"""What a cell of a table says."""


def is_in(cell, value):
    """Return whether a cell holds the value: a float as any text of the same float, all else as its own text."""
    if isinstance(value, float):
        return cell != "" and repr(float(cell)) == repr(value)
    return cell == ("" if value is None else str(value))
