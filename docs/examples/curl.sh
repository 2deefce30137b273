#!/usr/bin/env bash
# A lock with curl 7.82 or newer and jq: acquire, repeat safely, wait, hand over, force. Nodes from HOLDFAST_NODES.
set -euo pipefail

IFS=, read -ra nodes <<<"${HOLDFAST_NODES:-http://127.0.0.1:7700,http://127.0.0.1:7701,http://127.0.0.1:7702}"
name=examples/curl-$$

# post NODE PATH JSON: the answer, also if it is a refusal.
post() {
    curl --silent --show-error --json "$3" "${nodes[$1]}$2"
}

echo "alice acquires, and asks again on another node, as after a lost answer:"
ask="{\"name\": \"$name\", \"ttl_ms\": 60000, \"owner\": \"alice\", \"request_id\": \"request-of-alice-$$\"}"
first=$(post 0 /v1/locks/acquire "$ask")
again=$(post 1 /v1/locks/acquire "$ask")
echo "  same hold: $([[ $(jq -r .hold_id <<<"$first") == "$(jq -r .hold_id <<<"$again")" ]] && echo yes)"

echo "bob tries, and is told who is in the way:"
post 2 /v1/locks/acquire "{\"name\": \"$name\", \"ttl_ms\": 60000, \"owner\": \"bob\"}" |
    jq -c '{code, outcome, holder: .holders[0].owner}'

echo "bob waits up to ten seconds; alice releases:"
waited=$(mktemp)
trap 'rm -f "$waited"' EXIT
post 2 /v1/locks/acquire "{\"name\": \"$name\", \"ttl_ms\": 60000, \"owner\": \"bob\", \"wait_ms\": 10000}" >"$waited" &
until [[ $(curl -s "${nodes[0]}/v1/locks/$name" | jq '.queue | length') == 1 ]]; do sleep 0.05; done
post 0 /v1/locks/release "{\"hold_id\": $(jq .hold_id <<<"$first")}" | jq -c '{released}'
wait
echo "  bob has the lock, with a larger token: $(jq ".token > $(jq .token <<<"$first")" "$waited")"

echo "an operator ends it by force, and the lock stays closed for ten seconds:"
post 1 /v1/locks/force-release "{\"name\": \"$name\", \"reason\": \"bob hangs\", \"lock_delay_ms\": 10000}" |
    jq -c '[.forced[].owner]'
curl -s "${nodes[2]}/v1/locks/$name" | jq -c '{state}'

echo "bob hears of it at his next renewal:"
post 2 /v1/locks/renew "{\"hold_id\": $(jq .hold_id "$waited")}" | jq -c '{status, code}'
