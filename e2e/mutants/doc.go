// Command mutants removes one check at a time from the guard or the authorization server, and requires that a test fails:
//
//	cd e2e && go run ./mutants                   all
//	cd e2e && go run ./mutants -match If-Match   those whose list, file or description has the words
//	cd e2e && go run ./mutants -some 100 -seed x 100 of them, first those of the files that -changed names
//
// It prints each mutant that no test catches, and fails if there is one. It also fails if a mutant does not compile, or if
// the text that a mutant replaces is not found: whoever changes a check changes or removes its mutants.
//
//	*.txt         the mutants, by subject
//	list.go       reads them
//	mutant.go     one mutant: a file, a text in it, and what takes its place
//	function.go   the function that it changes
//	overlay.go    the code with all mutants in it, one of which is in force
//	suite.go      the tests that must catch a mutant
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
// A line such as
//
//	= caddymodule/authorize/people caddymodule:TestAdmin
//
// names the packages whose tests must catch the mutants below it, up to the next such line of the file, in the order in
// which they run. After a colon, a regular expression selects tests by name. Mutants without such a line must be caught by
// the tests of their package, or else by those of the other packages of the guard.
//
// Each function is compiled with the bodies of all its mutants; the variable MUTANT selects one. Nothing in the working
// tree changes. Only the test binaries that the chosen mutants need are built.
package main
