"""Why a command of Redis is not here, and what to do instead: the half of a refusal that helps."""

from typing import Final

_REASONS: Final = {
    "it has no shards: SUBSCRIBE": "SSUBSCRIBE SUNSUBSCRIBE SPUBLISH",
    "it has no hashes: keep them in Redis, or one text, such as JSON, in a string": (
        "HDEL HEXISTS HGET HGETALL HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HSCAN HSET HSETNX HVALS"
        " HEXPIRE HPEXPIRE HTTL HGETEX HSETEX HGETDEL"
    ),
    "it has no sets: keep them in Redis": (
        "SADD SCARD SDIFF SINTER SISMEMBER SMEMBERS SMISMEMBER SMOVE SPOP SRANDMEMBER SREM SSCAN SUNION"
    ),
    "it has no sorted sets: keep them in Redis": (
        "ZADD ZCARD ZCOUNT ZINCRBY ZPOPMAX ZPOPMIN BZPOPMIN BZPOPMAX ZRANGE ZRANGEBYSCORE ZRANK ZREM"
        " ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYSCORE ZSCAN ZSCORE"
    ),
    "it has no streams: keep them in Redis": "XACK XADD XDEL XGROUP XLEN XRANGE XREAD XREADGROUP XTRIM XINFO",
    "it has no bitmaps: keep them in Redis": "SETBIT GETBIT BITCOUNT BITFIELD BITOP BITPOS",
    "its lists have LPUSH, RPUSH, LPOP, RPOP, BLPOP, BRPOP, LINDEX, LLEN, LRANGE and LTRIM": (
        "BLMOVE BLMPOP BRPOPLPUSH LINSERT LMOVE LMPOP LPOS LPUSHX LREM LSET RPOPLPUSH RPUSHX"
    ),
    "a GET and a SET after WATCH, between MULTI and EXEC, do the same": ("INCRBYFLOAT SETRANGE SUBSTR"),
    "a lock keeps its name: write the new key and delete the old one": "COPY MOVE RENAME RENAMENX",
    "a database is a prefix of names: its keys have names, which stay": "SWAPDB",
    "it tells how it works by its metrics and its log; `holdfast watch` shows what happens to locks": (
        "DEBUG LATENCY MEMORY MONITOR OBJECT SLOWLOG"
    ),
    "every answered write is on the disks of a majority: for a copy, `holdfast backup save`": (
        "BGREWRITEAOF BGSAVE DUMP LASTSAVE RESTORE SAVE WAITAOF"
    ),
    "nodes replicate and elect their leader by themselves": (
        "FAILOVER PSYNC REPLCONF REPLICAOF SHUTDOWN SLAVEOF SYNC"
    ),
    "it is no Redis Cluster: use a client for one server, or for Sentinel": (
        "ASKING CLUSTER READONLY READWRITE"
    ),
    "rights come from --tokens": "ACL",
    "it keeps no functions: EVAL runs scripts": "FCALL FCALL_RO FUNCTION",
    "a script cannot call it": "KEYS SCAN SELECT PUBLISH WATCH MULTI EXEC",
}
_OF_COMMANDS: Final = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def reason_of(name: str) -> str:
    """Return why a command is missing, with what to do instead; "" if nothing is known about it."""
    return _OF_COMMANDS.get(name, "")
