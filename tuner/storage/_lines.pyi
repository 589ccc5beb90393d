from typing import Any

# What it returns is said in `lines`.

def filled(form: bytes, values: tuple[Any, ...], /) -> tuple[bytes, int]: ...
