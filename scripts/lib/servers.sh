# shellcheck shell=bash
# Install the servers and proxies that recipes are tested against, and the browser that looks at the page for people.
# To be sourced:
#
#     source "$root/scripts/lib/servers.sh"
#     holdfast_install_servers
#
# Installs what is missing from Debian's packages, as root and where there is apt-get; changes nothing otherwise.
# The exit code is 0 if all of it is there afterwards. Tests start servers of their own from these programs
# (tests/support/servers.py); those that the packages start, if they do, are not used.

readonly HOLDFAST_APT_S=300 # a mirror that does not answer must not stop the gate

# Print the packages of what is missing, one on each line.
holdfast_missing_servers() {
    command -v redis-server >/dev/null || echo redis-server
    local proxy
    for proxy in nginx haproxy; do # their folder is not on everybody's PATH
        command -v "$proxy" >/dev/null || [[ -x /usr/sbin/$proxy ]] || echo "$proxy"
    done
    command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || echo postgresql
    command -v chromium >/dev/null || echo chromium
    # What psycopg loads. To its end (no grep -q): with pipefail, a broken pipe would look as if nothing was found.
    PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep 'libpq\.so\.5' >/dev/null || echo libpq5
}

holdfast_install_servers() {
    local missing said
    mapfile -t missing < <(holdfast_missing_servers)
    ((${#missing[@]} > 0)) || return 0
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        echo "holdfast: not there: ${missing[*]}; on Debian or Ubuntu: apt-get install ${missing[*]}" >&2
        return 1
    fi
    echo "holdfast: installing ${missing[*]}" >&2
    local apt=(timeout "$HOLDFAST_APT_S" apt-get --quiet --quiet -o DPkg::Lock::Timeout=60)
    # A list of packages that could not be renewed may be good enough.
    "${apt[@]}" update >&2 || true
    if ! said=$(DEBIAN_FRONTEND=noninteractive "${apt[@]}" install --yes --no-install-recommends \
        "${missing[@]}" </dev/null 2>&1); then
        echo "$said" >&2
        return 1
    fi
    [[ -z "$(holdfast_missing_servers)" ]]
}
