#!/bin/sh
# Puts httpclient.Wrap in front of a real nginx for half a minute, on the
# loopback interface only. Installs nginx where it is missing and apt-get is
# there to do it; without it the program says that it skips and ends well.
#
#   compare/reallife/run.sh [-phase 8s] [-offered 300] [-slo 200ms]
set -eu
cd "$(dirname "$0")"

if ! command -v nginx >/dev/null 2>&1 && ! [ -x /usr/sbin/nginx ]; then
	if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -q >/dev/null && apt-get install -q -y --no-install-recommends nginx-light >/dev/null ||
			echo "run.sh: nginx could not be installed" >&2
		# The package may start a server of its own on port 80, which nobody
		# asked for.
		service nginx stop >/dev/null 2>&1 || true
	fi
fi
exec go run . "$@"
