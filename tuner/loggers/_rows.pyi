# What each of them returns is said in `texts`.

def num_alike(texts: list[bytes], start: int, keys: tuple[bytes, ...], kinds: bytes, /) -> int: ...
def table(texts: list[bytes], keys: tuple[bytes, ...], order: bytes, /) -> bytes | None: ...
def events(
    texts: list[bytes],
    times: list[float],
    keys: tuple[bytes, ...],
    step: int,
    picked: bytes,
    head: bytes,
    names: tuple[bytes, ...],
    /,
) -> bytes | None: ...
