// Command house prints size and structure metrics of this module with their targets and limits:
//
//	cd e2e && go run ./house
//
// It measures the module in the parent folder, or in the folder given as argument. A test fails if a figure exceeds its limit.
// With
//
//	go run ./house -passed caddymodule/guard/enforce:BenchmarkSearch50/bound
//	go run ./house -passed caddymodule/modules/expand:BenchmarkCached
//
// it prints the functions that each round of a benchmark executes, with the number of their files and packages: for a search
// behind the guard, and for a cached $expand.
//
//	main.go      prints the figures
//	figure.go    figures, targets and limits; limits.txt contains the limits
//	size.go      lines of the module and of the code that each Caddy module links; features
//	document.go  options, and the first Caddyfile of README
//	reach.go     the methods of a type, including those of embedded types
//	passed.go    the functions that a request executes
//
// All lines of a file are counted. Packages in folders with names ending in "test" are test support. Packages in a folder named
// "generate" are generators. A feature is a blank import of a standard build (the package caddymodule, and each package
// "standard" that it imports) without a comment that begins with "core".
package main
