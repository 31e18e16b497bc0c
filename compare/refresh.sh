#!/usr/bin/env bash
# Runs every command that docs/comparison.md names in a line "<!-- run: ... -->"
# or "<!-- text: ... -->", in this directory, and puts its output and the
# command itself between that line and the next "<!-- end -->"; the output of
# text as it is, that of run as Markdown. With an argument: only the commands
# that contain it.
#
#   bash refresh.sh              everything, about ten minutes on two cores
#   bash refresh.sh 'go test'    only the tests
set -euo pipefail
cd "$(dirname "$0")"
page=${PAGE:-../docs/comparison.md}
only=${1:-}
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# clean takes away what go test -v adds to a log line.
clean() {
	sed -E -e '/^(=== |--- |PASS$|ok )/d' -e 's/^ +[a-z]+_test\.go:[0-9]+: ?//' -e 's/^ {8}//'
}

replacing=
while IFS= read -r line; do
	case $line in
	'<!-- run: '* | '<!-- text: '*)
		printf '%s\n' "$line" >>"$new"
		command=${line#*: }
		command=${command%' -->'}
		[[ $command == *"$only"* ]] || continue
		replacing=yes
		printf '%s\n' "$command" >&2
		output=$(bash -c "$command" | clean)
		[[ $line == '<!-- run: '* ]] || output=$(printf '```text\n%s\n```' "$output")
		printf '\n%s\n\n```sh\ncd compare && %s\n```\n\n' "$output" "$command" >>"$new"
		;;
	'<!-- end -->')
		replacing=
		printf '%s\n' "$line" >>"$new"
		;;
	*)
		[[ $replacing ]] || printf '%s\n' "$line" >>"$new"
		;;
	esac
done <"$page"
cp "$new" "$page"
