"""URLs of directories in object stores."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tuner.storage.urls import checked_url, is_like_url, is_url, join_url, split_url

fsspec = pytest.importorskip("fsspec")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("memory://dir/exp/", "memory://dir/exp"),
        ("memory:///dir", "memory:///dir"),
        ("MEMORY://Dir", "memory://Dir"),
        ("file:///tmp/dir", "file:///tmp/dir"),
    ],
)
def test_a_url_has_one_normal_form(given, expected):
    assert checked_url("storage_path", given) == expected


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
    ],
)
def test_a_url_of_no_directory_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        checked_url("storage_path", given)


@pytest.mark.parametrize("given", ["s3://me:hunter2@bucket/dir", "s3://bucket/dir?secret=hunter2"])
def test_a_url_with_credentials_is_refused_and_not_repeated(given):
    with pytest.raises(ValueError, match="must not contain") as refusal:
        checked_url("storage_path", given)
    assert "hunter2" not in str(refusal.value)


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
