# shellcheck shell=bash
# Make the virtual environment of a checkout and set VENV. To be sourced, with the checkout's root:
#
#     source "$root/scripts/lib/venv.sh" "$root"
#     exec "$VENV/bin/python" ...
#
# Afterwards $VENV/bin/python has the project (editable) and its `dev` extra, in the versions of
# requirements/dev.txt, whose hashes pip compares. This costs nothing when it is so already; it installs again
# when pyproject.toml or requirements/ has changed or the checkout has moved. Several scripts may start at once.
# Messages go to stderr. Two variables change what is made:
#
#     HOLDFAST_PYTHON   the interpreter to use instead of the first that fits
#     HOLDFAST_VENV     the folder to use instead of .venv, relative to the checkout's root

holdfast_find_python() {
    local candidate
    for candidate in ${HOLDFAST_PYTHON:+"$HOLDFAST_PYTHON"} python3 python3.11 python3.12 python3.13 python3.14 python; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
        if [[ -n "${HOLDFAST_PYTHON:-}" ]]; then
            break
        fi
    done
    echo "holdfast: no Python 3.11 or newer with the venv module found${HOLDFAST_PYTHON:+ at $HOLDFAST_PYTHON}." >&2
    echo "holdfast: on Debian or Ubuntu: apt-get install python3 python3-venv; or set HOLDFAST_PYTHON." >&2
    return 1
}

# What the environment was made from. It is written last, so an interrupted installation leaves none.
holdfast_stamp() {
    echo "$1 $(cat "$1/pyproject.toml" "$1"/requirements/*.txt | cksum)"
}

# Tell pip of $VENV to install.
holdfast_pip_install() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
}

holdfast_venv_is_ready() {
    [[ -x "$VENV/bin/python" && -f "$VENV/holdfast.stamp" ]] &&
        [[ "$(<"$VENV/holdfast.stamp")" == "$(holdfast_stamp "$1")" ]]
}

holdfast_install() {
    local root=$1 python
    rm -f "$VENV/holdfast.stamp"
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(holdfast_find_python) || return 1
        echo "holdfast: making $VENV with $("$python" --version)" >&2
        "$python" -m venv --clear "$VENV" >&2 || return 1
    fi
    echo "holdfast: installing the project and its tools into $VENV; this takes about a minute" >&2
    # pip compares no hashes of what it builds wheels with in an environment of its own: so they are built in this one.
    holdfast_pip_install --require-hashes --requirement "$root/requirements/build.txt" &&
        holdfast_pip_install --require-hashes --no-build-isolation --use-pep517 \
            --requirement "$root/requirements/dev.txt" &&
        (cd "$root" && holdfast_pip_install --no-deps --no-build-isolation --editable .) || return 1
    holdfast_stamp "$root" >"$VENV/holdfast.stamp"
}

holdfast_ensure_venv() {
    local root=$1
    holdfast_venv_is_ready "$root" && return 0
    (
        # Without flock, only the protection against another script that starts at the same time is lost.
        if command -v flock >/dev/null; then
            flock 9 || exit 1
        fi
        holdfast_venv_is_ready "$root" || holdfast_install "$root" 9>&-
    ) 9>"$VENV.lock"
}

VENV="$1/${HOLDFAST_VENV:-.venv}"
holdfast_ensure_venv "$1" || exit 1
