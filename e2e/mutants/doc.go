// Command mutants removes one check at a time from the guard or the authorization server, and requires that a test fails:
//
//	cd e2e && go run ./mutants                   all
//	cd e2e && go run ./mutants -match If-Match   those with these words in their list, file or description
//	cd e2e && go run ./mutants -some 100 -seed x 100 of them, starting with those of the files in -changed
//
// It prints each mutant that no test catches, and fails if there is one. It also fails if a mutant does not compile, or if
// the text that a mutant replaces is not found: a change to a check must also change or remove its mutants.
//
//	*.txt         the mutants, by subject
//	list.go       reads them
//	mutant.go     one mutant: a file, a text in it, and its replacement
//	function.go   the function that it changes
//	overlay.go    the code with all mutants, one of which is active
//	suite.go      the tests that must catch a mutant
//	trial.go      test binaries, built once, and run for each mutant
//	sample.go     chooses mutants
//	main.go       runs the tests for the mutants, counts the results
//
// A mutant is written as
//
//	@ caddymodule/guard/internal/access/verdict.go: a constraint need not hold
//	- case !matches(g.Constraint, res):
//	+ case false:
//
// with any number of lines of each sort. The old text must occur exactly once in the file; it may begin and end within a
// line. The change must be within the body of one function. Lines that begin with # are comments.
//
// A line such as
//
//	= caddymodule/authorize/people caddymodule:TestAdmin
//
// lists the packages whose tests must catch the following mutants, up to the next such line of the file, in the order in
// which they run. After a colon, a regular expression selects tests by name. Mutants without such a line must be caught by
// the tests of their package, or otherwise by those of the other packages of the guard.
//
// Each function is compiled with the bodies of all its mutants; the environment variable MUTANT selects one. Nothing in the
// working tree changes. Only the test binaries that the chosen mutants need are built.
package main
