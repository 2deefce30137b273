# shellcheck shell=bash
# Make the virtual environment of a checkout and set VENV. To be sourced, with the checkout's root:
#
#     source "$root/scripts/lib/venv.sh" "$root"
#     exec "$VENV/bin/python" ...
#
# Afterwards $VENV/bin/python has client and node (editable) and what most tests need, in the versions of
# requirements/test.txt, whose hashes pip compares. A second argument asks for more or less: `dev` for all that the gate
# uses (the checkers, the libraries of recipes), `node` for what client and node run with; what is missing comes with the
# first script that needs it. With `docs` it has what builds the documentation, and nothing of ours. This costs nothing
# when it is so already; it installs again when a pyproject.toml or requirements/ has changed or the checkout has moved.
# Several scripts may start at once. Messages go to stderr. Two variables change what is made:
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

# What the environment of checkout $2 has, `build`, `node`, `test`, `dev` or `docs`, and what it was made from. It is written last, so an
# interrupted installation leaves none.
holdfast_stamp() {
    local version
    version=$(grep '^__version__' "$2/holdfast/_version.py")
    echo "$1 $2 $(cat "$2/pyproject.toml" "$2/node/pyproject.toml" "$2/node/hatch_build.py" "$2"/requirements/*.txt - <<<"$version" | cksum)"
}

# Whether $VENV has what $2 says, or more, for checkout $1.
holdfast_venv_is_ready() {
    local stamp has enough=$2
    [[ -x "$VENV/bin/python" && -f "$VENV/holdfast.stamp" ]] || return 1
    case $2 in
    build) enough='build docs node test dev' ;;
    node) enough='node test dev' ;;
    test) enough='test dev' ;;
    esac
    stamp=$(<"$VENV/holdfast.stamp")
    for has in $enough; do
        [[ $stamp != "$(holdfast_stamp "$has" "$1")" ]] || return 0
    done
    return 1
}

# Tell pip of $VENV to install.
holdfast_pip_install() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
}

# Install what the file $1 pins, which is for $2.
holdfast_install_pinned() {
    local file=$1 purpose=$2
    shift 2
    echo "holdfast: installing $(grep -c '^[^ #].*==' "$file") packages $purpose" >&2
    holdfast_pip_install --require-hashes --requirement "$file" "$@"
}

holdfast_install() {
    local root=$1 has=$2 python purpose
    rm -f "$VENV/holdfast.stamp"
    if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(holdfast_find_python) || return 1
        echo "holdfast: making $VENV with $("$python" --version)" >&2
        "$python" -m venv --clear "$VENV" >&2 || return 1
    fi
    case $has in
    node) purpose='that a node and the client run with' ;;
    test) purpose='for client, node and most tests' ;;
    docs) purpose='that build the documentation' ;;
    *) purpose='for client, node and all tools and tests; this takes about a minute' ;;
    esac
    # pip compares no hashes of what it builds wheels with in an environment of its own: so they are built in this one.
    holdfast_install_pinned "$root/requirements/build.txt" 'that build wheels' || return 1
    [[ $has == build ]] || holdfast_install_pinned "$root/requirements/$has.txt" "$purpose" --no-build-isolation --use-pep517 || return 1
    [[ $has == build || $has == docs ]] || (cd "$root" && holdfast_pip_install --no-deps --no-build-isolation --editable . --editable ./node) || return 1
    holdfast_stamp "$has" "$root" >"$VENV/holdfast.stamp"
}

holdfast_ensure_venv() {
    local root=$1 has=$2
    holdfast_venv_is_ready "$root" "$has" && return 0
    (
        # Without flock, only the protection against another script that starts at the same time is lost.
        if command -v flock >/dev/null; then
            flock 9 || exit 1
        fi
        holdfast_venv_is_ready "$root" "$has" || holdfast_install "$root" "$has" 9>&-
    ) 9>"$VENV.lock"
}

VENV="$1/${HOLDFAST_VENV:-.venv}"
holdfast_ensure_venv "$1" "${2:-test}" || exit 1
