#!/usr/bin/env bash
# Runs every fuzz target of the module at the top, each for FUZZTIME (12s).
# What makes one fail is then in testdata/fuzz beside it.
set -euo pipefail
cd "$(dirname "$0")/.."

count=0
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz runs one target. The go command now and then reports its own deadline as a
# failure, when the time is up while an input is being tried: there is no failing
# input then, and it is no finding. Everything else that fails is.
fuzz() {
	# The name is matched whole: -fuzz wants exactly one target.
	go test -vet=off -run='^$' -fuzz="^$2\$" -fuzztime="${FUZZTIME:-12s}" -fuzzminimizetime=5s -parallel=2 "$1" 2>&1 | tee "$log" && return 0
	if grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input\|panic' "$log"; then
		echo "time was up within an input, and nothing failed: $2"
		return 0
	fi
	return 1
}

for package in $(go list ./...); do
	if ! list=$(go test -list '^Fuzz' "$package"); then
		failed+=("$package")
		continue
	fi
	for target in $(grep '^Fuzz' <<<"$list"); do
		count=$((count + 1))
		echo "fuzzing $package $target"
		fuzz "$package" "$target" || failed+=("$package $target")
	done
done
echo "$count fuzz targets, ${#failed[@]} failed: ${failed[*]-}"
[[ $count -gt 0 && ${#failed[@]} -eq 0 ]]
