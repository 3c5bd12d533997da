#!/bin/bash
# Installs the Debian packages that building and testing need and that are missing. Needs root.
#
#   apt.sh [PACKAGE...]     these only, instead of all
set -euo pipefail
all=(ca-certificates busybox-static erofs-utils runc iproute2 gcc libc6-dev make git bash coreutils diffutils grep sed findutils mawk strace python3)
[ $# -gt 0 ] || set -- "${all[@]}"
missing=()
for p; do
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
timeout 300 apt-get -qq update
timeout 600 apt-get -qq install -y --no-install-recommends "${missing[@]}" > /dev/null
