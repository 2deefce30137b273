"""What a link of the packet switch does to packets: each rule by itself, and several at once."""

import random

import pytest

from lab.chaos.netns.links import CUT, HEADER_BYTES, HELD_BACK_S, PLAIN, QUEUE_BYTES_MAX, Link, Rule, together

PACKETS = [bytes([number % 256, number // 256]) * 50 for number in range(10_000)]
NUMBERS = {packet: number for number, packet in enumerate(PACKETS)}


def link(rule: Rule) -> Link:
    """Return a link under a rule."""
    result = Link(random.Random(1))
    result.rule = rule
    return result


def sent_all(through: Link, step_s: float = 0.001) -> list[tuple[float, bytes]]:
    """Send all packets, one each millisecond from 0 on; return what comes out, in the order of arrival."""
    out = [each for i, packet in enumerate(PACKETS) for each in through.send(packet, i * step_s)]
    return sorted(out, key=lambda each: each[0])


def test_a_link_without_a_rule_passes_all_at_once() -> None:
    """Every packet comes out as it went in, at the time it went in."""
    assert sent_all(link(PLAIN)) == [(i * 0.001, packet) for i, packet in enumerate(PACKETS)]


def test_a_cut_link_passes_nothing_and_counts_it() -> None:
    """No packet comes out, and each is counted as dropped."""
    cut = link(CUT)
    assert sent_all(cut) == []
    assert (cut.sent, cut.dropped) == (len(PACKETS), len(PACKETS))


def test_what_is_under_way_when_a_link_is_cut_does_not_arrive() -> None:
    """A packet that was sent before the cut and is due after it is dropped."""
    slow = link(Rule(delay_ms=100))
    assert len(slow.send(PACKETS[0], 0.0)) == 1
    assert not slow.drops_on_arrival()
    slow.rule = CUT
    assert slow.drops_on_arrival()
    assert slow.dropped == 1


def test_loss_takes_its_share() -> None:
    """Of 10,000 packets 5 % are lost, give or take one in a hundred of all; the others keep their order."""
    lossy = link(Rule(loss=0.05))
    out = [packet for _, packet in sent_all(lossy)]
    assert 400 <= lossy.dropped <= 600
    assert len(out) == len(PACKETS) - lossy.dropped
    assert [NUMBERS[packet] for packet in out] == sorted(NUMBERS[packet] for packet in out)


def test_delay_and_jitter_keep_the_order() -> None:
    """Each packet takes between delay and delay plus jitter, unless it waits for one before it."""
    out = sent_all(link(Rule(delay_ms=200, jitter_ms=50)))
    assert [packet for _, packet in out] == PACKETS
    taken_s = [due_s - i * 0.001 for i, (due_s, _) in enumerate(out)]
    assert min(taken_s) >= 0.2
    assert 0.24 < max(taken_s) <= 0.25 + 1e-9
    assert max(taken_s) - min(taken_s) > 0.005


def test_jitter_without_a_queue_is_spread_evenly() -> None:
    """Packets that do not meet take every time up to the jitter."""
    out = sent_all(link(Rule(jitter_ms=100)), step_s=1.0)
    taken_s = [due_s - i for i, (due_s, _) in enumerate(out)]
    assert 0.048 < sum(taken_s) / len(taken_s) < 0.052


def test_reordered_packets_are_overtaken() -> None:
    """A tenth of the packets is held back for a while, in which those behind pass; none is lost."""
    out = sent_all(link(Rule(delay_ms=10, reorder=0.1)))
    order = [NUMBERS[packet] for _, packet in out]
    assert sorted(order) == list(range(len(PACKETS)))
    newest = -1
    overtaken = 0
    for number in order:
        overtaken += newest > number
        newest = max(newest, number)
    assert 900 <= overtaken <= 1100
    assert max(place - number for place, number in enumerate(order)) <= HELD_BACK_S / 0.001


def test_duplicates_come_twice() -> None:
    """A tenth of the packets arrives twice, one right after the other."""
    out = [packet for _, packet in sent_all(link(Rule(duplicate=0.1)))]
    assert 10_900 <= len(out) <= 11_100
    assert set(out) == set(PACKETS)


def test_corruption_flips_one_bit_behind_the_header() -> None:
    """One packet of fifty differs in exactly one bit, which is never in the IP header."""
    out = [packet for _, packet in sent_all(link(Rule(corrupt=0.02)))]
    wrong = [(old, new) for old, new in zip(PACKETS, out, strict=True) if old != new]
    assert 150 <= len(wrong) <= 250
    for old, new in wrong:
        assert old[:HEADER_BYTES] == new[:HEADER_BYTES]
        assert (int.from_bytes(old) ^ int.from_bytes(new)).bit_count() == 1


def test_a_slow_link_passes_at_its_rate_and_drops_what_its_queue_cannot_hold() -> None:
    """A link of 128 kbit/s passes 16,000 bytes a second, and a packet never waits behind a full queue."""
    slow = link(Rule(rate_kbit_s=128))
    out = sent_all(slow)  # 100,000 bytes a second
    assert out[-1][0] * 16_000 == pytest.approx(len(out) * 100, rel=0.01)
    assert slow.dropped == len(PACKETS) - len(out) > 0
    waits_s = [due_s - NUMBERS[packet] * 0.001 for due_s, packet in out]
    assert max(waits_s) <= QUEUE_BYTES_MAX / 16_000 + 0.01


def test_a_slow_link_that_is_idle_has_no_queue() -> None:
    """A packet that finds the link free takes as long as its bytes, however long the link has been used."""
    slow = link(Rule(rate_kbit_s=8))
    assert slow.send(b"x" * 100, 0.0)[0][0] == pytest.approx(0.1)
    assert slow.send(b"x" * 100, 5.0)[0][0] == pytest.approx(5.1)


def test_the_same_chance_decides_the_same() -> None:
    """Two links with the same random numbers treat the same packets in the same way."""
    rule = Rule(delay_ms=5, jitter_ms=5, loss=0.1, reorder=0.1, duplicate=0.1, corrupt=0.1)
    assert sent_all(link(rule)) == sent_all(link(rule))


def test_rules_of_several_faults_add_up() -> None:
    """Cuts win, delays add up, chances combine, and the lowest rate holds."""
    both = together(
        [
            Rule(delay_ms=10, jitter_ms=1, loss=0.5, rate_kbit_s=200),
            Rule(delay_ms=5, jitter_ms=2, loss=0.5, rate_kbit_s=100),
            Rule(corrupt=0.25),
        ]
    )
    assert both == Rule(delay_ms=15, jitter_ms=3, loss=0.75, corrupt=0.25, rate_kbit_s=100)
    assert together([both, CUT]).is_cut
    assert together([]) == PLAIN
