#!/bin/sh
# Installs what the browser tests need from Debian's packages. Does nothing
# where a Chromium and a font are there already.
set -eu
if command -v chromium >/dev/null && [ -d /usr/share/fonts/truetype/liberation ]; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends chromium fonts-liberation
