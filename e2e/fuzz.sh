#!/usr/bin/env bash
# Runs fuzz targets of the module at the top, each for FUZZTIME (12s): all, or TARGETS of
# them, chosen by SEED, and first those of the packages of the files in CHANGED.
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
	go test -vet=off -run='^$' -fuzz="^$2\$" -fuzztime="${FUZZTIME:-12s}" -fuzzminimizetime=5s -parallel=2 "./$1" 2>&1 | tee "$log" && return 0
	if grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input\|panic' "$log"; then
		echo "time was up within an input, and nothing failed: $2"
		return 0
	fi
	return 1
}

# targets lists a package's folder and a target a line. A fuzz target is a function of a test file.
targets() {
	grep -rhoE --include='*_test.go' --exclude-dir=e2e -H '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|^\./(.*)/[^/]*:func |\1 |'
}

# chosen puts targets into the order in which they are worth running: those of what changed first, then by lot.
chosen() {
	local package target place
	while read -r package target; do
		place=1
		for file in ${CHANGED-}; do
			[[ ${file%/*} == "$package" ]] && place=0
		done
		echo "$place $(sha256sum <<<"${SEED-} $package $target" | cut -c1-16) $package $target"
	done | sort | cut -d' ' -f3-
}

while read -r package target <&3; do
	count=$((count + 1))
	echo "fuzzing $package $target"
	fuzz "$package" "$target" || failed+=("$package $target")
done 3< <(targets | chosen | head -n "${TARGETS:-1000}")
echo "$count fuzz targets, ${#failed[@]} failed: ${failed[*]-}"
[[ $count -gt 0 && ${#failed[@]} -eq 0 ]]
