// Command mutants removes one check at a time from the guard or the authorization server, and requires that a test fails:
//
//	cd e2e && go run ./mutants                     all
//	cd e2e && go run ./mutants -match If-Match     mutants with this text in their list, file or description
//	cd e2e && go run ./mutants -some 100 -seed x   100 mutants, first those of the files in -changed
//
// It prints each mutant that no test catches, and fails if there is one. It also fails if a mutant does not compile, or if the
// text that a mutant replaces is not found: whoever changes a check must change or remove its mutants.
//
//	*.txt         the mutants, by subject
//	list.go       reads the lists
//	mutant.go     one mutant: a file, a text in it, and its replacement
//	function.go   the function that a mutant changes
//	overlay.go    the code with all mutants; one of them is active
//	suite.go      the tests that must catch a mutant
//	trial.go      test binaries, built once and run for each mutant
//	sample.go     selection of mutants
//	main.go       runs and counts mutants
//
// A mutant is written as
//
//	@ caddymodule/guard/internal/access/verdict.go: a constraint need not hold
//	- case !matches(g.Constraint, res):
//	+ case false:
//
// with any number of lines of each kind. The old text must be in the file exactly once. Its first and last line may be parts of
// lines. The change must be in the body of one function. Lines that begin with # are comments.
//
// A line such as
//
//	= caddymodule/authorize/people caddymodule:TestAdmin
//
// lists the packages with tests that must catch the mutants below it, up to the next such line of the file, in the order of
// execution. After a colon, a regular expression selects tests by name. Mutants without such a line must be caught by the tests
// of their package, otherwise by those of the other packages of the guard.
//
// Each function is compiled with the bodies of all its mutants; the environment variable MUTANT selects one. Nothing in the
// working tree changes. Only the test binaries that the chosen mutants need are built.
package main
