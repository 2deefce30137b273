# shellcheck shell=bash
# Find the interpreters that Holdfast can run on. To be sourced:
#
#     source "$root/scripts/lib/pythons.sh"
#     holdfast_pythons            # "3.11 /usr/bin/python3.11", one line for each version, the oldest first
#
# Looks along PATH and among the versions of pyenv, and leaves out what does not run (pyenv's shims) and what
# cannot make a virtual environment (Debian without python3-venv).

readonly HOLDFAST_MINOR_MIN=11
readonly HOLDFAST_MINOR_MAX=30

holdfast_pythons() {
    local minor candidate
    for ((minor = HOLDFAST_MINOR_MIN; minor <= HOLDFAST_MINOR_MAX; minor++)); do
        while read -r candidate; do
            if holdfast_is_python "$candidate" "3.$minor"; then
                echo "3.$minor $candidate"
                break
            fi
        done < <(
            type -ap "python3.$minor" || true # there may be none
            compgen -G "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor.*/bin/python3.$minor" |
                sort --version-sort --reverse
        )
    done
}

# Whether $1 runs, is of version $2 and can make a virtual environment.
holdfast_is_python() {
    local program='import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])'
    [[ "$("$1" -c "$program" 2>/dev/null)" == "$2" ]]
}
