#!/bin/sh
# The unit is not enabled: its Caddyfile comes first.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers caddy-fhir.conf
elif ! id caddy-fhir >/dev/null 2>&1; then
	adduser -S -D -H -h /var/lib/caddy-fhir caddy-fhir # Alpine's
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart caddy-fhir.service
fi
