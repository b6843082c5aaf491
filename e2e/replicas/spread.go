package main

import (
	"fmt"
	"slices"
	"time"
)

// spread is a list of durations.
type spread []time.Duration

// quantile returns the duration that the given share of durations does not exceed.
func (s spread) quantile(share float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

// String returns the quantiles as three cells of a Markdown table.
func (s spread) String() string {
	if len(s) == 0 {
		return "| |"
	}
	return fmt.Sprintf("%s | %s | %s", milliseconds(s.quantile(0.5)), milliseconds(s.quantile(0.99)), milliseconds(s.quantile(1)))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
