#!/bin/sh
# dpkg says what is done by a word, rpm by how many will be left.
set -e
case ${1:-0} in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now caddy-fhir.service
	fi
	;;
esac
