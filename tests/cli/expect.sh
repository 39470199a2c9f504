# shellcheck shell=bash disable=SC2034
# What the tests of the command line share. $mtrain is the program; each test runs in a folder of its own.

mtrain=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
failed=0

wrong() {
	echo "FAILED: mtrain $1"
	shift
	printf '  %s\n' "$@"
	failed=$((failed + 1))
}

# refused CODE TEXT ARGUMENT...: the exit code, nothing on stdout, and on stderr exactly the line "mtrain: TEXT".
refused() {
	local code=$1 text=$2 got
	shift 2
	"$mtrain" "$@" >out 2>err
	got=$?
	[ "$got" = "$code" ] || wrong "$*" "exit code $got, not $code"
	[ -s out ] && wrong "$*" "stdout: $(head -n 3 out)"
	[ "$(cat err)" = "mtrain: $text" ] || wrong "$*" "says:   $(cat err)" "wanted: mtrain: $text"
}

# prints TEXT ARGUMENT...: exit code 0, nothing on stderr, TEXT somewhere on stdout.
prints() {
	local text=$1 got
	shift
	"$mtrain" "$@" >out 2>err
	got=$?
	[ "$got" = 0 ] || wrong "$*" "exit code $got"
	[ -s err ] && wrong "$*" "stderr: $(cat err)"
	grep -qF -- "$text" out || wrong "$*" "does not print: $text"
}
