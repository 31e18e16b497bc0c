#!/usr/bin/env bash
# Runs every command that the pages of the comparison name in a line
# "<!-- run: ... -->" or "<!-- text: ... -->", in this directory, and puts its
# output and the command itself between that line and the next "<!-- end -->";
# the output of text as it is, that of run as Markdown. With an argument: only
# the commands that contain it. Of the README, where other commands stand too,
# only those that begin with "go run . ".
#
#   bash refresh.sh                 everything, about twenty minutes on two cores
#   bash refresh.sh 'set traps'     some commands
#   PAGE=../docs/tuning.md bash refresh.sh
set -euo pipefail
cd "$(dirname "$0")"
only=${1:-}
pages=(../docs/comparison.md ../docs/comparison/*.md ../docs/tuning.md ../README.md)
[[ -z ${PAGE:-} ]] || pages=("$PAGE")
new=$(mktemp)
trap 'rm -f "$new"' EXIT

# clean takes away what go test -v adds to a log line.
clean() {
	sed -E -e '/^(=== |--- |PASS$|ok )/d' -e 's/^ +[a-z]+_test\.go:[0-9]+: ?//' -e 's/^ {8}//'
}

# refresh PAGE
refresh() {
	local page=$1 replacing= line command output
	: >"$new"
	while IFS= read -r line; do
		case $line in
		'<!-- run: '* | '<!-- text: '*)
			printf '%s\n' "$line" >>"$new"
			command=${line#*: }
			command=${command%' -->'}
			[[ $command == *"$only"* ]] || continue
			[[ $page != ../README.md || $command == 'go run . '* ]] || continue
			replacing=yes
			printf '%s: %s\n' "$page" "$command" >&2
			output=$(bash -c "$command" </dev/null | clean)
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
}

for page in "${pages[@]}"; do
	refresh "$page"
done
