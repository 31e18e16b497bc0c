#!/bin/sh
# Installs redis-server, which the tests run, from Debian's package. Does nothing
# where it is there already.
set -eu
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends redis-server
# The package starts a server; the tests start their own.
if [ -d /run/systemd/system ]; then
	systemctl disable --now redis-server
fi
