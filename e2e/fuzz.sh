#!/usr/bin/env bash
# Runs every fuzz target of the module at the top, each for FUZZTIME (60s).
# What makes one fail is then in testdata/fuzz beside it.
set -euo pipefail
cd "$(dirname "$0")/.."

count=0
failed=()
for package in $(go list ./...); do
	if ! list=$(go test -list '^Fuzz' "$package"); then
		failed+=("$package")
		continue
	fi
	for target in $(grep '^Fuzz' <<<"$list"); do
		count=$((count + 1))
		echo "fuzzing $package $target"
		# The name is matched whole: -fuzz wants exactly one target.
		go test -vet=off -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-60s}" -parallel=2 "$package" ||
			failed+=("$package $target")
	done
done
echo "$count fuzz targets, ${#failed[@]} failed: ${failed[*]-}"
[[ $count -gt 0 && ${#failed[@]} -eq 0 ]]
