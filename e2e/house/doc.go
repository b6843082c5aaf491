// Command house prints how large the packages of this module are, and how they
// depend on each other:
//
//	cd e2e && go run ./house
//
// It measures the module in the folder above, or in a folder given as its argument. With
//
//	go run ./house -limits house/limits.txt
//
// it prints the figures that the module is held to. A test fails where one is over its limit. With
//
//	go run ./house -passed caddymodule/guard/enforce:BenchmarkSearch50/bound
//
// it prints the functions that each round of a benchmark passes.
//
//	main.go      reads the packages, prints the figures
//	limits.go    the figures that have limits; limits.txt has these
//	reach.go     the methods and fields of a type, with those that it embeds
//	passed.go    what a request passes
//	room.go      one package: lines, symbols, functions, types
//	arrows.go    imports between packages, uses between files, circles
//
// Lines are all lines of a file; code are those that are not only comment or blank. Symbols are what a package exports: constants,
// variables, functions, types, and exported methods of exported types. A file has an
// arrow to another of its package if it uses anything that the other declares. An
// arrow between packages is an import; it leads upward where
// caddymodule/testdata/rooms.txt lists the imported package above the importing one.
// A field is open if it is exported or has a name in JSON: a type that has only such
// fields is configuration, or a document. Only the lines of tests are counted; packages whose
// name ends in "test" are summed up apart.
package main
