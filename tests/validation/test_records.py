"""What is written of validations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.instances import instances
from tuner.storage import strict_json
from tuner.validation.records import Validation
from tuner.wire.declared import decode, encode


@pytest.mark.parametrize("cls", [Validation], ids=lambda cls: cls.__name__)
@given(st.data())
def test_every_declared_record_comes_back_from_its_text(cls, data):
    record = data.draw(instances(cls))
    assert decode(cls, strict_json.loads(strict_json.dumps(encode(record)))) == record
