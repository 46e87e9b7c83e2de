# For the scripts here to source; they stand in the repository's root.

# built BENCH [ARGUMENTS OF CARGO]: builds a bench and prints where its binary is.
built() {
    cargo bench --no-run --message-format=json --bench "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}

# needs COMMAND PACKAGE...
needs() {
    while [ $# -gt 0 ]; do
        command -v "$1" >/dev/null || {
            echo "$0 needs $1 (Debian's package $2), which is not here" >&2
            exit 1
        }
        shift 2
    done
}
