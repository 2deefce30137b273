"""The tables of what nodes show: the columns of each kind of thing, and how to get them out of a row."""

from collections.abc import Mapping
from typing import Final

from holdfast.cli.printing import Columns, Row, field, length_of


def owners(row: Row) -> str:
    """Return who holds something: one by name, and how many more."""
    holders = row.get("holders", ())
    more = max(len(holders), row.get("holders_count", 0)) - 1
    if not holders:
        return "-"
    return f"{holders[0].get('owner')}" + (f" +{more}" if more else "")


def _labels(row: Row) -> str:
    return ",".join(f"{name}:{value}" for name, value in row.get("labels", {}).items()) or "-"


def _value(row: Row) -> str:
    return str(row["value"]) if "value" in row else f"base64:{row.get('value_base64', '')}"


LISTED: Final[Mapping[str, Columns]] = {
    "locks": {
        "NAME": field("name"),
        "STATE": field("state"),
        "HOLDER": owners,
        "MODE": lambda row: next((holder.get("mode") for holder in row.get("holders", ())), "-"),
        "WAITING": lambda row: len(row.get("queue", ())),
    },
    "semaphores": {
        "NAME": field("name"),
        "LIMIT": field("limit"),
        "LEFT": field("available"),
        "HOLDER": owners,
        "WAITING": lambda row: row.get("queue_length", len(row.get("queue", ()))),
    },
    "elections": {
        "NAME": field("name"),
        "LEADER": lambda row: (row.get("leader") or {}).get("owner", "-"),
        "VALUE": lambda row: (row.get("leader") or {}).get("value", "-"),
        "WAITING": lambda row: row.get("queue_length", len(row.get("queue", ()))),
    },
    "rate-limits": {
        "NAME": field("name"),
        "ALGORITHM": field("algorithm"),
        "WINDOW": length_of("window_ms"),
        "WHOLE IN": length_of("reset_in_ms"),
        "WAITING": field("waiting"),
        "PRINCIPAL": field("principal"),
        "LAST": field("last_principal"),
    },
    "fences": {"NAME": field("name"), "TOKEN": field("highest_token")},
    "cells": {
        "KEY": lambda row: row.get("key", row.get("key_base64")),
        "VERSION": field("version"),
        "ENDS IN": length_of("expires_in_ms"),
        "VALUE": _value,
    },
    "sessions": {
        "NAME": field("session_name"),
        "OWNER": field("owner"),
        "LABELS": _labels,
        "ENDS IN": length_of("expires_in_ms"),
        "HOLDS": field("holds_count"),
        "WAITS": field("tickets_count"),
    },
    "holds": {
        "KIND": field("kind"),
        "NAME": field("name"),
        "OWNER": field("owner"),
        "SESSION": field("session_name"),
        "TOKEN": field("token"),
        "HELD": length_of("since_ms"),
        "ENDS IN": length_of("expires_in_ms"),
    },
}
"""The columns of each kind that `list` shows."""

HOLDERS: Final[Columns] = {
    "OWNER": field("owner"),
    "TOKEN": field("token"),
    "MODE": lambda row: row.get("mode") or "-",
    "HELD": length_of("since_ms"),
    "ENDS IN": length_of("expires_in_ms"),
    "NOTE": lambda row: row.get("note") or "-",
}
"""Those that hold one thing."""
ASKED: Final[Columns] = {
    "ASKED TO GIVE UP": field("owner"),
    "TOKEN": field("token"),
    "LEFT": lambda row: length_of("ends_in_ms")(row["revocation"]),
    "REASON": lambda row: row["revocation"].get("reason") or "-",
}
"""Holders that were asked to give up what they hold, and how long they have left."""
WAITERS: Final[Columns] = {
    "PLACE": field("position"),
    "OWNER": field("owner"),
    "MODE": lambda row: row.get("mode") or "-",
    "WAITED": length_of("waited_ms"),
    "TICKET": field("ticket"),
}
"""Those that wait for one thing."""
OF_SESSION: Final[Columns] = {
    "STATE": field("state"),
    "KIND": field("kind"),
    "NAME": field("name"),
    "TOKEN": field("token"),
    "SINCE": length_of("since_ms", "waited_ms"),
}
"""What one session holds and waits for."""
