"""The warnings about open addresses: at once, and then once an hour."""

import logging

import pytest

from http_api import insecure_log
from http_api.insecure_log import PERIOD_S, InsecureLog


def test_it_warns_at_once_and_every_hour(caplog: pytest.LogCaptureFixture) -> None:
    """Of each address, however often it looks; never when there is nothing to warn of."""
    caplog.set_level(logging.INFO, logger=insecure_log.logger.name)
    now_s = [500.0]
    log = InsecureLog(lambda: now_s[0], ["http: open", "", "peer: open"])
    silent = InsecureLog(lambda: now_s[0], ["", ""])
    lines = ["event=insecure-address detail='http: open'", "event=insecure-address detail='peer: open'"]
    for hour in range(3):
        for late_s in (0.0, 1.0, PERIOD_S - 1):
            now_s[0] = 500.0 + hour * PERIOD_S + late_s
            log.look()
            silent.look()
        assert [record.getMessage() for record in caplog.records] == (hour + 1) * lines
    assert {record.levelname for record in caplog.records} == {"WARNING"}
