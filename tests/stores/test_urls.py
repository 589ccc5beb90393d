"""URLs of directories in object stores."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tuner.storage.urls import is_like_url, is_url, join_url, path_in, split_url
from tuner.stores.checked_url import checked_url

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def with_s3fs(monkeypatch):
    """Let s3fs be found, installed or not; nothing imports it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("memory://dir/exp/", "memory://dir/exp"),
        ("memory:///dir", "memory:///dir"),
        ("MEMORY://Dir", "memory://Dir"),
        ("file:///tmp/dir", "file:///tmp/dir"),
        ("s3://bucket?region=us-west-2", "s3://bucket?region=us-west-2"),
        (
            "s3://bucket/dir/?scheme=http&region=eu-west-1&endpoint_override=localhost:9000",
            "s3://bucket/dir?endpoint_override=http%3A%2F%2Flocalhost%3A9000&region=eu-west-1",
        ),
        (
            "S3://bucket?endpoint_override=http://host:9000/&allow_bucket_creation=true",
            "s3://bucket?endpoint_override=http%3A%2F%2Fhost%3A9000",
        ),
        ("s3://bucket?endpoint_override=host", "s3://bucket?endpoint_override=https%3A%2F%2Fhost"),
        ("s3://bucket?scheme=http", "s3://bucket?scheme=http"),
        ("s3://bucket?", "s3://bucket"),
    ],
)
def test_a_url_has_one_normal_form(given, expected, with_s3fs):
    assert checked_url("storage_path", given) == expected
    assert checked_url("storage_path", expected) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3:/oops", "'s3:/oops', which looks like a URL with one slash; pass a string with two"),
        ("s3://", "storage_path must name a bucket, got 's3://'; write s3://bucket/dir"),
        ("s3:///dir", "must have names between its slashes"),
        ("s3://bucket//dir", "must have names between its slashes"),
        ("s3://bucket/../dir", "none of them '.' or '..'"),
        ("memory://", "must name a directory, got 'memory://'; write memory:///dir"),
        ("simplecache::s3://bucket/dir", "must be the URL of one file system"),
        ("nosuch://bucket/dir", "must begin with a protocol that fsspec knows, such as s3://"),
        ("s3://bucket/d*r", "must not contain '[?]', '[*]'"),
        ("gs://bucket?region=x", "must not contain '[?]'"),
        ("s3://?region=x", "must name a bucket"),
        ("s3://bucket?colour=red", "must not contain other options .* than region, .*'colour'"),
        ("s3://bucket?scheme=ftp", "must have the scheme http or https, got 'ftp'"),
        ("s3://bucket?endpoint_override=ftp://host", "an endpoint_override of a host and a port"),
        ("s3://bucket?endpoint_override=http://host/path", "without a password and a path"),
    ],
)
def test_a_url_of_no_directory_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        checked_url("storage_path", given)


@pytest.mark.parametrize(
    "given",
    [
        "s3://me:hunter2@bucket/dir",
        "s3://bucket/dir?secret=hunter2",
        "s3://bucket?secret_key=hunter2&region=x",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(given):
    with pytest.raises(ValueError, match="must not contain") as refusal:
        checked_url("storage_path", given)
    assert "hunter2" not in str(refusal.value)


def test_an_endpoint_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="without a password") as refusal:
        checked_url("storage_path", "s3://bucket?endpoint_override=http://me:hunter2@host")
    assert "hunter2" not in str(refusal.value)


def test_options_stay_at_the_end_of_what_is_joined_and_split(with_s3fs):
    url = checked_url("storage_path", "s3://bucket?endpoint_override=http://host:9000&region=x")
    joined = join_url(url, "group/exp")
    assert joined.startswith("s3://bucket/group/exp?endpoint_override=")
    assert split_url(joined)[1] == "exp"
    assert split_url(split_url(joined)[0]) == (url, "group")
    assert path_in(joined, url) == "group/exp"


@pytest.mark.parametrize(
    ("url", "package", "command"),
    [
        ("s3://bucket", "s3fs", 'pip install "tuner-hpo.s3."'),
        ("gs://bucket", "gcsfs", 'pip install "tuner-hpo.gcs."'),
        ("abfs://container@account/dir", "adlfs", "pip install adlfs"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch, url, package, command
):
    find = importlib.util.find_spec
    monkeypatch.setattr(sys.modules["fsspec.registry"], "registry", {})
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ValueError, match=f"{package}, which is not installed; run: {command}"):
        checked_url("storage_path", url)


def test_a_path_on_a_file_system_may_have_its_protocol_or_not():
    memory = fsspec.filesystem("memory")
    paths = ["dir/exp", "/dir/exp", "memory://dir/exp"]
    assert {checked_url("storage_path", path, memory) for path in paths} == {"memory:///dir/exp"}


def test_a_path_of_another_file_system_than_the_given_one_is_refused():
    with pytest.raises(ValueError, match="must be a directory of storage_filesystem"):
        checked_url("storage_path", "s3://bucket/dir", fsspec.filesystem("memory"))


def test_paths_of_this_machine_are_no_urls():
    paths = ["/dir", "C:/data", "./s3:/dir", "~/runs", "a:b"]
    assert not any(is_url(path) or is_like_url(path) for path in paths)


def test_a_url_is_split_where_it_was_joined():
    assert split_url(join_url("s3://bucket/dir", "exp")) == ("s3://bucket/dir", "exp")
