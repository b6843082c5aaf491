#!/bin/sh
# The user and /var/lib/caddy-fhir stay: the signing keys are in it.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
