"""Lines while trials wait for a store that does not answer."""

from tuner.stores.store_waits import StoreWaits

URL = "s3://bucket/run"


def test_a_line_comes_after_ten_seconds_and_then_each_time_after_twice_as_long(caplog):
    waits = StoreWaits(URL)
    for second in range(200):
        waits.look(float(second), 3)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for {URL}: 3 trials, {second} s" for second in (10, 20, 40, 80, 160)
    ]


def test_a_second_outage_is_told_from_its_beginning_and_one_trial_is_one(caplog):
    waits = StoreWaits(URL)
    for outage_s in (35.0, 0.0, 9.0, 11.0):
        waits.look(outage_s, 1)
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for {URL}: 1 trial, {second} s" for second in (35, 11)
    ]


def test_where_no_trial_waits_nothing_is_printed(caplog):
    StoreWaits(URL).look(100.0, 0)
    assert caplog.records == []
