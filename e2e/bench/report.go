package main

import (
	"fmt"
	"time"
)

const tableHead = `| request | answer | requests/s | p50 | p99 | CPU per request | CPU of respond | ratio |
|---|---|---|---|---|---|---|---|
`

const lengthsHead = `| letters typed | requests/s | p50 | p99 | CPU per request |
|---|---|---|---|---|
`

func printRow(name string, ours, fixed load) {
	fmt.Printf("| %s | %d B | %.0f | %s | %s | %s | %s | **%.2f** |\n", name, ours.size(), ours.rate(),
		milliseconds(ours.quantile(0.5)), milliseconds(ours.quantile(0.99)), micros(ours.perRequest()), micros(fixed.perRequest()),
		float64(ours.perRequest())/float64(max(1, fixed.perRequest())))
}

func printWorkload(name string, ours, theirs load) {
	fmt.Printf("| %s | %.0f | %s | %s | %s | %s | **%.2f** |\n", name, ours.rate(),
		milliseconds(ours.quantile(0.5)), milliseconds(ours.quantile(0.99)), micros(ours.perRequest()), micros(theirs.perRequest()),
		float64(ours.perRequest())/float64(max(1, theirs.perRequest())))
}

func printLength(letters int, l load) {
	fmt.Printf("| %d | %.0f | %s | %s | %s |\n", letters, l.rate(),
		milliseconds(l.quantile(0.5)), milliseconds(l.quantile(0.99)), micros(l.perRequest()))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func micros(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }
