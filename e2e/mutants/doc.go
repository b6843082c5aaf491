// Command mutants takes one check at a time out of the guard, and requires that its tests fail:
//
//	cd e2e && go run ./mutants                   all
//	cd e2e && go run ./mutants -match If-Match   those whose file or description has the words
//	cd e2e && go run ./mutants -some 100 -seed x 100 of them, first those of the files that -changed names
//
// It prints each mutant that no test catches, and fails if there is one. So it does if a mutant does not compile, or if
// what it replaces is not found: code that changes takes its mutants along.
//
//	*.txt         the mutants, by subject
//	list.go       reads them
//	mutant.go     one mutant: a file, a text in it, and what takes its place
//	function.go   the function that it changes
//	overlay.go    the code with all mutants in it, one of which is in force
//	trial.go      test binaries, built once, and run for each mutant
//	sample.go     chooses mutants
//	main.go       tries them, counts
//
// A mutant is written as
//
//	@ caddymodule/guard/internal/access/verdict.go: a constraint need not hold
//	- case !matches(g.Constraint, res):
//	+ case false:
//
// with as many lines of each sort as it takes. The old text must be in the file exactly once, whatever is before and
// after it in the first and last line. What changes must be the body of one function. Lines that begin with # are
// comments.
//
// Each function is compiled with the bodies of all its mutants; the variable MUTANT says which is in force. Nothing in the
// working tree changes. The tests of the mutant's own package are run first; if they pass, those of the other packages
// of the guard.
package main
