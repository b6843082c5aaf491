package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/e2e/replicas/history"
)

// report prints the results of the operations, and the effects of each kind of fault on operations that need the store.
func report(operations []history.Operation, faults []occurredFault) {
	fmt.Print("\n| operation | ok | refused | no answer, or 5xx | p50 | p99 | longest |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, kind := range []history.Kind{history.SignIn, history.Authorize, history.Exchange, history.Refresh, history.Revoke, history.Access} {
		counts := map[history.Result]int{}
		var took spread
		for _, o := range operations {
			if o.Kind == kind {
				counts[o.Result]++
				took = append(took, o.Return-o.Call)
			}
		}
		fmt.Printf("| %s | %d | %d | %d | %s |\n", kind, counts[history.OK], counts[history.Refused], counts[history.Unknown], took)
	}
	if len(faults) == 0 {
		return
	}
	fmt.Print("\n| fault | times | without an answer, or 5xx: changes | access | longest time without a change |\n|---|--:|--:|--:|--:|\n")
	slices.SortStableFunc(faults, func(a, b occurredFault) int { return cmp.Compare(a.name, b.name) })
	for len(faults) > 0 {
		n := 1
		for n < len(faults) && faults[n].name == faults[0].name {
			n++
		}
		printFault(operations, faults[:n])
		faults = faults[n:]
	}
}

// recovery is the time after a fault during which its effects are still counted.
const recovery = 3 * time.Second

// printFault prints the effects of all occurrences of one kind of fault.
func printFault(operations []history.Operation, faults []occurredFault) {
	changes, accesses := 0, 0
	var longest time.Duration
	for _, f := range faults {
		begin, end := f.begin, f.end+recovery
		successes := []time.Duration{begin, end}
		for _, o := range operations {
			switch {
			case o.Return < begin || o.Call > end:
			case o.Result == history.Unknown && o.Kind == history.Access:
				accesses++
			case o.Result == history.Unknown:
				changes++
			case o.Result == history.OK && (o.Kind == history.Exchange || o.Kind == history.Refresh):
				successes = append(successes, min(o.Return, end))
			}
		}
		slices.Sort(successes)
		for i, at := range successes[1:] {
			longest = max(longest, at-successes[i])
		}
	}
	fmt.Printf("| %s | %d | %d | %d | %.1f s |\n", faults[0].name, len(faults), changes, accesses, longest.Seconds())
}
