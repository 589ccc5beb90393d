"""Options of an S3 store in its URL, as scripts for Ray Tune and PyArrow write them.

``s3://bucket/dir?region=us-west-2&endpoint_override=http://host:9000`` names a compatible store. In
its normal form such a URL goes everywhere as it is, to other machines as well. It has no slash
behind its question mark, so that names can be joined to it and split off.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from tuner.storage.urls import split_options

_OPTIONS: Final = ("region", "endpoint_override", "scheme")
_WITHOUT_EFFECT: Final = ("allow_bucket_creation", "allow_bucket_deletion")
"""What PyArrow knows too; no bucket is created or deleted here."""
_SCHEMES: Final = ("http", "https")
CLIENT_CONFIG: Final = {
    # The library's own retries multiply: 5 of s3fs by 5 of botocore, each up to the read timeout.
    # Three are left, for the parts of a multipart upload. Not "adaptive": its limit on the rate of
    # requests is shared by all threads and waits inside a call, so that signs of life would wait
    # behind uploads, and calls would overrun the time for which they are retried.
    "retries": {"mode": "standard", "total_max_attempts": 3},
    "connect_timeout": 5,
    "read_timeout": 15,
    # More than the parts of all files that are uploaded at once, or the journal waits for those.
    "max_pool_connections": 50,
}
"""Of botocore."""


def normal_options(name: str, options: str) -> str:
    """Return options in their normal form.

    Args:
        name: The argument, for messages.
        options: What is behind the question mark of a URL.

    Raises:
        ValueError: If one is not known, or has no such value; its value is not repeated.

    Example:
        >>> normal_options("storage_path", "scheme=http&endpoint_override=localhost:9000")
        'endpoint_override=http%3A%2F%2Flocalhost%3A9000'
    """
    given = dict(parse_qsl(options, keep_blank_values=True))
    for key in given:
        if key not in (*_OPTIONS, *_WITHOUT_EFFECT):
            raise ValueError(
                f"{name} must not contain other options behind '?' than {', '.join(_OPTIONS)}, got "
                f"{key!r}; set credentials in the environment or in the configuration file of the "
                "store's client"
            )
    scheme, endpoint = given.get("scheme", ""), given.get("endpoint_override", "")
    if scheme and scheme not in _SCHEMES:
        raise ValueError(f"{name} must have the scheme http or https, got {scheme!r}")
    kept = {"region": given.get("region", "")}
    if endpoint:
        kept["endpoint_override"] = _checked_endpoint(name, endpoint, scheme or "https")
    else:
        kept["scheme"] = scheme
    return urlencode(sorted((key, value) for key, value in kept.items() if value))


def _checked_endpoint(name: str, endpoint: str, scheme: str) -> str:
    full = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    parts = urlsplit(full)
    is_plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    if parts.scheme not in _SCHEMES or not parts.hostname or "@" in parts.netloc or not is_plain:
        raise ValueError(
            f"{name} must have an endpoint_override of a host and a port, such as "
            "http://host:9000, without a password and a path"
        )
    return f"{parts.scheme}://{parts.netloc}"


def client_options(url: str) -> tuple[str, dict[str, Any]]:
    """Return a URL without its options, and what they are for `s3fs.S3FileSystem`.

    Example:
        >>> client_options("s3://bucket/dir?endpoint_override=http%3A%2F%2Fhost%3A9000")
        ('s3://bucket/dir', {'endpoint_url': 'http://host:9000'})
        >>> client_options("s3://bucket/dir?region=eu-west-1")
        ('s3://bucket/dir', {'client_kwargs': {'region_name': 'eu-west-1'}})
    """
    bare, text = split_options(url)
    given = dict(parse_qsl(normal_options("a URL", text)))
    options: dict[str, Any] = {}
    if endpoint := given.get("endpoint_override"):
        options["endpoint_url"] = endpoint
    if scheme := given.get("scheme"):
        options["use_ssl"] = scheme == "https"
    if region := given.get("region"):
        options["client_kwargs"] = {"region_name": region}
    return bare, options
