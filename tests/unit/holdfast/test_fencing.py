"""The resource's side of fencing: no token goes back behind one that was seen."""

import threading

import pytest

import holdfast


def test_a_fenced_resource_refuses_older_tokens() -> None:
    """Equal and larger tokens pass, smaller ones are stale, from the token it was made with on."""
    resource = holdfast.FencedResource(highest_token=4)
    resource.check(4)
    resource.check(9)
    resource.check(9)
    with pytest.raises(holdfast.StaleToken) as caught:
        resource.check(8)
    assert (caught.value.token, caught.value.highest_token, caught.value.code) == (8, 9, "stale-token")
    assert resource.highest_token == 9


def test_a_fenced_resource_serves_several_threads() -> None:
    """Whatever the interleaving, each thread's accepted tokens never go back behind the highest."""
    resource = holdfast.FencedResource()
    accepted: list[int] = []

    def work(tokens: range) -> None:
        for token in tokens:
            try:
                resource.check(token)
            except holdfast.StaleToken:
                continue
            accepted.append(token)

    threads = [threading.Thread(target=work, args=(range(i, 3000, 4),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert resource.highest_token == 2999
    assert 2999 in accepted
