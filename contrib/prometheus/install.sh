#!/bin/sh
# Installs prometheus and promtool, which the tests run, from Debian's package.
# Does nothing where both are there already.
set -eu
if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends prometheus
# The package starts a server on every address of the machine; nobody wants it.
if [ -d /run/systemd/system ]; then
	systemctl disable --now prometheus
fi
