"""A cohort nested without end costs the reader nothing but a refusal."""

from __future__ import annotations

import pytest

from protos._generated import plan_pb2
from protos.codec import parse
from protos.words import QUERY as QUERIES
from wardround.federation.errors import MalformedMessage

QUERY = plan_pb2.Query(table="encounters", aggregates=[plan_pb2.Aggregate(statistic=plan_pb2.STATISTIC_COUNT)])


def nested(levels: int, field: int) -> bytes:
    """The bytes of an expression that is a chain of `levels` terms around one leaf."""
    inner = plan_pb2.Expression(is_null=plan_pb2.IsNull(column="age")).SerializeToString()
    for _ in range(levels - 1):
        wrapped = inner if field == 5 else _tagged(1, inner)
        inner = _tagged(field, wrapped)
    return inner


def _tagged(field: int, content: bytes) -> bytes:
    length, encoded = len(content), bytearray([field << 3 | 2])
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length]) + content


@pytest.mark.parametrize("field", [5, 6, 7], ids=["not", "and", "or"])
@pytest.mark.parametrize("levels", [33, 60, 99, 1000, 20_000])
def test_a_cohort_nested_too_deep_is_refused_without_exhausting_the_stack(levels: int, field: int) -> None:
    content = QUERY.SerializeToString() + _tagged(3, nested(levels, field))
    with pytest.raises(MalformedMessage):
        QUERIES.read(parse(plan_pb2.Query, content))


@pytest.mark.parametrize("field", [5, 6, 7], ids=["not", "and", "or"])
def test_a_cohort_of_the_greatest_depth_is_read(field: int) -> None:
    message = plan_pb2.Query()
    message.CopyFrom(QUERY)
    message.cohort.ParseFromString(nested(32, field))
    QUERIES.read(message)
