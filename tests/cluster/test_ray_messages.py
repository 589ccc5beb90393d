"""What the engine for Ray says of a cluster that cannot be used, without one."""

import pytest

from tuner.cluster.ray_engine import _advice

REFUSED = """Failed to connect to GCS. Last connection error: Traceback (most recent call last):
  File "node.py", line 996, in _init_gcs_client
    client = GcsClient(
ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: The token is missing or incorrect.
"""


def failure(cause):
    error = ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")
    error.__cause__ = cause
    return error


def test_a_wrong_token_is_named_as_ray_does_and_not_taken_for_a_missing_node():
    advice = _advice("auto", failure(RuntimeError(REFUSED)))
    assert "InvalidAuthToken: The token is missing or incorrect; give this machine" in advice
    assert "ray start" not in advice


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (OSError("Connection refused"), "at 10.0.0.1:6379: Connection refused; this machine"),
        (OSError(), "at 10.0.0.1:6379; this machine"),
        (None, "at 10.0.0.1:6379; this machine"),
    ],
)
def test_the_reason_for_another_failure_is_given_with_its_cause(cause, said):
    advice = _advice("10.0.0.1:6379", failure(cause))
    assert said in advice
    assert "ray start" in advice
