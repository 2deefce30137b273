# Try failed tests once more: machines stand still now and then, and one test of thousands finds its node or its
# client late. To be sourced.

# What is never tried again, by any word of the first report: a broken promise, which is there or not; and what is
# noticed in another test than the one that did it, which would be innocent alone.
HOLDFAST_NEVER_AGAIN='BROKEN|PromiseBroken|a promise is broken|V(iolation|IOLATION)|report\.violation|ERROR at teardown'
HOLDFAST_NEVER_AGAIN+='|PytestUnraisableExceptionWarning|PytestUnhandled'
HOLDFAST_TRIED_AGAIN_MAX=10

# Run pytest by the command behind DIRECTORY; if some tests fail, and it is no more than a few of them, and none of
# what is above, run those once more. All of them have to pass then; one that is skipped the second time has not.
holdfast_twice() {
    local directory=$1 status failed
    shift
    mkdir -p "$directory" || return 1
    "$@" -o "cache_dir=$directory/cache" 2>&1 | tee "$directory/first"
    status=${PIPESTATUS[0]}
    ((status == 1)) || return "$status"
    failed=$(grep -cE '^(FAILED|ERROR) ' "$directory/first")
    if grep -E "$HOLDFAST_NEVER_AGAIN" "$directory/first" >"$directory/why"; then
        echo "=== not tried again: $(head -n 1 "$directory/why")"
        return 1
    elif ((failed < 1 || failed > HOLDFAST_TRIED_AGAIN_MAX)); then
        echo "=== not tried again: $failed tests failed; from 1 to $HOLDFAST_TRIED_AGAIN_MAX would be"
        return 1
    fi
    grep -E '^(FAILED|ERROR) ' "$directory/first" | sed 's/^/=== tried again: /'
    # These began in time.
    [[ " $* " != *" --not-after "* ]] || set -- "$@" --not-after 1e12
    "$@" -o "cache_dir=$directory/cache" --last-failed --last-failed-no-failures none 2>&1 | tee "$directory/second"
    status=${PIPESTATUS[0]}
    ((status == 0)) || return "$status"
    # The last line is the count of all outcomes.
    if tail -n 1 "$directory/second" | grep -q skipped || ! tail -n 1 "$directory/second" | grep -q passed; then
        echo "=== the second time not all of them have passed"
        return 1
    fi
}
